// Bytes that copies have moved so far. Any thread.
#pragma once

#include <cstdint>

namespace fake_cuda {

std::uint64_t copied_bytes();

}  // namespace fake_cuda
