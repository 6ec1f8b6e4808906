// What the theory says that a training step moves: for each device or rank the calls, messages and
// bytes by collective and by peer, as Communicator::traffic() counts them, so that the two can be
// compared member by member.
//
// Pure functions; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/traffic.h"

namespace unisono::train::comparison {

/// Elements of 4 bytes: of the model, and per sample.
struct ModelSize {
  std::uint64_t parameters = 0, buffers = 0;
  std::uint64_t inputs = 0, outputs = 0, targets = 0;
};

/// How a batch lies on the devices of one process: samples of the first, the second, ... Devices
/// beyond the chunks take no part. An index names the device that holds outputs and loss.
struct BatchCut {
  std::vector<std::size_t> chunks;
  std::size_t devices = 1;
  std::size_t output = 0;
};

/// One entry per device: parameters and buffers from the first device, inputs scattered from it,
/// outputs gathered on the output device, their gradients scattered back, gradients reduced to the
/// first.
std::vector<TrafficReport> dp_traffic(const ModelSize& size, const BatchCut& cut);
/// The same with targets and scalars instead of outputs.
std::vector<TrafficReport> dp_criterion_traffic(const ModelSize& size, const BatchCut& cut);

/// One entry per rank: a ring all-reduce for each bucket, whose elements are given.
std::vector<TrafficReport> ddp_traffic(std::span<const std::uint64_t> buckets, int ranks);
/// A ring reduce-scatter and a ring all-gather of equal slices, the last of them padded.
std::vector<TrafficReport> zero_traffic(std::uint64_t parameters, int ranks);

/// Elements that all devices together send in a step of dp where the chunks are even:
/// X(n-1)/n + (n-1)(P+U) + O(n-1)/n outputs + O(n-1)/n output gradients + (n-1)P gradients.
std::uint64_t even_dp_elements(const ModelSize& size, std::uint64_t samples, std::uint64_t devices);
/// X(n-1)/n + (n-1)(P+U) + T(n-1)/n targets + 2(n-1) scalars + (n-1)P gradients.
std::uint64_t even_dp_criterion_elements(const ModelSize& size, std::uint64_t samples,
                                         std::uint64_t devices);
/// What a rank sends in a step of ddp where the ranks divide each bucket: 2(N-1)P/N.
std::uint64_t even_ddp_elements(std::uint64_t parameters, std::uint64_t ranks);

/// Outputs gathered on one device.
struct OutputMemory {
  std::uint64_t outputs = 0;        ///< bytes
  std::uint64_t with_gradient = 0;  ///< bytes; the loss makes a gradient of the same shape
};
OutputMemory output_memory(std::uint64_t outputs_per_sample, std::uint64_t samples);

}  // namespace unisono::train::comparison
