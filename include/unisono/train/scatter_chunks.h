// How a batch is cut over the devices of one process: samples per device, first device first.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace unisono::train {

/// Pieces of ceil(samples / devices), the last one smaller: perhaps fewer pieces than devices, 5
/// samples on 4 devices are 2, 2, 1. No samples, no pieces. No devices: std::invalid_argument.
std::vector<std::size_t> even_chunks(std::size_t samples, std::size_t devices);

/// The published BalancedDataParallel: unit = (samples - first) div (devices - 1). Where `first` is
/// below the unit, the first device takes `first` samples and the others a unit each, the remainder
/// handed out one each to the second device, the third, ...; a `first` of 0 leaves the first device
/// out (its chunk is 0). Otherwise the even chunks, of the others alone where `first` is 0.
std::vector<std::size_t> balanced_chunks(std::size_t samples, std::size_t first,
                                         std::size_t devices);

/// What a command tells before it starts with balanced chunks.
struct BalancedCheck {
  std::vector<std::size_t> chunks;  ///< empty when refused
  std::string refusal;              ///< why it must not start; empty: it may
  std::vector<std::string> notes;   ///< a fall back to even chunks, the remainder's memory
};
BalancedCheck check_balanced(std::size_t samples, std::size_t first, std::size_t devices);

}  // namespace unisono::train
