// Where tensors' elements come from: aligned blocks, large ones used again.
#pragma once

#include <cstddef>

namespace unisono::train {

/// 64-byte aligned: a cache line and the widest vector. Throws std::bad_alloc. Any thread may give
/// a block back.
void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;

}  // namespace unisono::train
