// Which processor this machine has, as it names itself. Values only; safe from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace unisono::topology {

/// "AMD EPYC 7763 64-Core Processor, family 25 model 1 stepping 1": one line of printable ASCII of
/// at most kProcessorModelMax characters, the same each time on one machine. "unknown" where it
/// does not say.
std::string read_processor_model();
inline constexpr std::size_t kProcessorModelMax = 160;

}  // namespace unisono::topology
