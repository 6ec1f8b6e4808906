#include "tools/train/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "config/config.h"
#include "cuda/driver/survey.h"
#include "tools/common/local_ranks.h"

namespace unisono::train {
namespace {

/// Devices of one process have memories of their own.
bool has_devices(const Options& options) {
  return is_in_process(options.strategy) && options.strategy != StrategyKind::kSingle;
}

// Whatever else hinders a rank may be its own: another GPU, or one that another rank has for
// itself.
bool has_no_gpus() {
  const Result<Config> config = Config::from_environment();
  return config && !cuda::survey_devices(config->cuda.use, config->cuda.library);
}

}  // namespace

int gpu_of_rank(const Options& options, int local_rank) {
  if (options.device == ComputeDevice::kCpu) return -1;
  const std::vector<int>& map = options.device_map;
  return map.empty() ? local_rank : map[static_cast<std::size_t>(local_rank) % map.size()];
}

std::vector<int> gpus_of_devices(const Options& options) {
  if (options.device == ComputeDevice::kCpu) return {};
  return options.device_map.empty() ? options.devices : options.device_map;
}

int first_gpu(const Options& options) {
  if (!has_devices(options)) return gpu_of_rank(options, tools::launched_place().local_rank);
  const std::vector<int> gpus = gpus_of_devices(options);
  return gpus.empty() ? -1 : gpus.front();
}

std::unique_ptr<DeviceMemory> open_memory(const Options& options) {
  const tools::Place place = tools::launched_place();
  const int gpu = has_devices(options) ? -1 : first_gpu(options);
  if (gpu < 0) return std::make_unique<DeviceMemory>();
  if (place.size > 1 && !place.knows_local_rank && options.device_map.empty()) {
    throw std::runtime_error(fmt::format(
        "rank {} does not know its place on this host: LOCAL_RANK is not set; set it, or say by "
        "--device-map which GPU the ranks of this host take",
        place.rank));
  }
  try {
    return std::make_unique<DeviceMemory>(Residence::kCuda, gpu);
  } catch (const std::runtime_error& error) {
    const std::string what = fmt::format(
        "rank {} (local rank {}) cannot compute on cuda:{}: {}; --device cpu needs no GPU",
        place.rank, place.local_rank, gpu, error.what());
    if (place.local_rank > 0 && has_no_gpus()) throw SharedFailure(what);
    throw std::runtime_error(what);
  }
}

std::vector<Seat> gather_seats(const Options& options, Communicator& world) {
  if (options.device == ComputeDevice::kCpu) return {};
  std::vector<Seat> seats;
  if (has_devices(options)) {
    const std::vector<int> gpus = gpus_of_devices(options);
    const int count = static_cast<int>(options.devices.size());
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      seats.push_back({options.devices[at], count, i, gpus[at % gpus.size()]});
    }
    return seats;
  }
  const int local_rank = tools::launched_place().local_rank;
  const std::array<int, 2> mine{local_rank, gpu_of_rank(options, local_rank)};
  std::vector<int> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine.data(), all.data(), mine.size(), DataType::kInt32);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank) * mine.size();
    seats.push_back({rank, world.size(), all[at], all[at + 1]});
  }
  return seats;
}

}  // namespace unisono::train
