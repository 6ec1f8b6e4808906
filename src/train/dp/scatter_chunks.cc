// Even and balanced cuts of a batch, and what there is to say about the balanced ones.
#include "unisono/train/scatter_chunks.h"

#include <algorithm>
#include <stdexcept>

namespace unisono::train {
namespace {

std::size_t need_devices(std::size_t devices) {
  if (devices == 0) throw std::invalid_argument("a batch cannot be cut for 0 devices");
  return devices;
}

/// What each device but the first gets at least; 0 where the published division is below 1.
std::size_t unit_of(std::size_t samples, std::size_t first, std::size_t devices) {
  return devices < 2 || first > samples ? 0 : (samples - first) / (devices - 1);
}

/// The largest first chunk that is below the others' unit; 0 also where there is none.
std::size_t largest_first(std::size_t samples, std::size_t devices) {
  return samples + 1 < devices ? 0 : (samples + 1 - devices) / devices;
}

std::string join(const std::vector<std::size_t>& chunks) {
  std::string text;
  for (const std::size_t chunk : chunks) text += (text.empty() ? "" : ", ") + std::to_string(chunk);
  return text;
}

}  // namespace

std::vector<std::size_t> even_chunks(std::size_t samples, std::size_t devices) {
  const std::size_t most = samples / need_devices(devices) + (samples % devices != 0 ? 1 : 0);
  std::vector<std::size_t> chunks;
  for (std::size_t left = samples; left > 0; left -= chunks.back()) {
    chunks.push_back(std::min(left, most));
  }
  return chunks;
}

std::vector<std::size_t> balanced_chunks(std::size_t samples, std::size_t first,
                                         std::size_t devices) {
  const std::size_t unit = unit_of(samples, first, need_devices(devices));
  if (first < unit) {
    std::vector<std::size_t> chunks(devices, unit);
    chunks[0] = first;
    const std::size_t remainder = samples - first - unit * (devices - 1);
    for (std::size_t device = 1; device <= remainder; ++device) ++chunks[device];
    return chunks;
  }
  if (first > 0 || devices == 1) return even_chunks(samples, devices);
  std::vector<std::size_t> chunks = even_chunks(samples, devices - 1);
  if (!chunks.empty()) chunks.insert(chunks.begin(), 0);
  return chunks;
}

BalancedCheck check_balanced(std::size_t samples, std::size_t first, std::size_t devices) {
  BalancedCheck check;
  if (devices < 2) {
    check.refusal = "balanced chunks need at least 2 devices, there is " + std::to_string(devices) +
                    "; name more devices or use another strategy";
    return check;
  }
  if (first > samples) {
    check.refusal = "the first device's batch of " + std::to_string(first) +
                    " is larger than the batch of " + std::to_string(samples) +
                    "; give it at most " + std::to_string(largest_first(samples, devices));
    return check;
  }
  check.chunks = balanced_chunks(samples, first, devices);
  const std::size_t unit = unit_of(samples, first, devices);
  if (first >= unit) {
    check.notes.push_back(
        "the first device's batch of " + std::to_string(first) + " is not below the others' " +
        std::to_string(unit) + ": even chunks instead, " + join(check.chunks) +
        "; balanced ones need at most " + std::to_string(largest_first(samples, devices)));
  } else if (const std::size_t most = check.chunks[1]; most > unit) {
    check.notes.push_back("chunks are " + join(check.chunks) +
                          ": the remainder makes the largest " + std::to_string(most) +
                          " samples, which the second device's memory must "
                          "hold, not " +
                          std::to_string(unit));
  }
  return check;
}

}  // namespace unisono::train
