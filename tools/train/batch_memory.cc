#include "tools/train/batch_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "base/median.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"

namespace unisono::train {
namespace {

constexpr int kCopies = 15;

/// Of /proc/meminfo; 0 where it does not tell.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::size_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

/// Why so many bytes are better not locked; empty: nothing speaks against it.
std::string reason_against(std::size_t bytes, std::size_t ranks) {
  const std::size_t available = available_memory();
  if (bytes > available / 2 / ranks) {
    return fmt::format(
        "{} of batches on each of {} ranks are more than half of the available memory ({})",
        tools::format_bytes_rounded(static_cast<double>(bytes)), ranks,
        tools::format_bytes_rounded(static_cast<double>(available)));
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  if (bytes <= limit.rlim_cur) return "";
  return fmt::format(
      "{} of batches are more than the limit of locked memory ({}); raise it by ulimit -l",
      tools::format_bytes_rounded(static_cast<double>(bytes)),
      tools::format_bytes_rounded(static_cast<double>(limit.rlim_cur)));
}

double median_copy(DeviceMemory& device, const Tensor& batch) {
  const DeviceMemory::Scope scope(device);
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Tensor copy(batch);
    device.wait();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(seconds);
}

Tensor zeros_in(DeviceMemory& memory, const Shape& shape) {
  const DeviceMemory::Scope scope(memory);
  return Tensor(shape);
}

/// All that batches take, for a moment; why it cannot be had, or "".
std::string reason_of_trial(int gpu, std::size_t bytes) {
  try {
    try_page_lock(gpu, bytes);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

BatchMemory choose_batch_memory(PinMemory pin, int gpu, std::size_t bytes, std::size_t ranks) {
  BatchMemory choice;
  choice.reason = pin == PinMemory::kOff ? "--pin-memory off" : reason_against(bytes, ranks);
  if (choice.reason.empty()) choice.reason = reason_of_trial(gpu, bytes);
  choice.is_page_locked = choice.reason.empty();
  if (choice.is_page_locked) {
    choice.memory = std::make_unique<DeviceMemory>(Residence::kPageLocked, gpu);
    return choice;
  }
  if (pin == PinMemory::kOn) {
    throw std::runtime_error("--pin-memory on: " + choice.reason + ", or take auto or off");
  }
  choice.memory = std::make_unique<DeviceMemory>();
  return choice;
}

std::string copies_text(const CopyTimes& times, std::size_t bytes, bool takes_page_locked,
                        const std::string& reason) {
  const auto time = [](double seconds) {
    return seconds > 0 ? fmt::format("{:.1f} us", seconds * 1e6) : "not measured";
  };
  tools::Table table({{"batch buffers", tools::Align::kLeft},
                      {fmt::format("copy of {} to the GPU",
                                   tools::format_bytes_rounded(static_cast<double>(bytes)))},
                      {"", tools::Align::kLeft}});
  table.add_row({"page-locked", time(times.page_locked),
                 takes_page_locked ? "taken"
                 : reason.empty()  ? ""
                                   : "not taken: " + reason});
  table.add_row({"pageable", time(times.pageable), takes_page_locked ? "" : "taken"});
  std::string text = table.text();
  // GpuBackend::write_page_locked().
  constexpr std::size_t kThroughABufferMax = std::size_t{4} << 20;
  if (bytes <= kThroughABufferMax) {
    text += "up to 4 MiB go through a page-locked buffer of the GPU's either way\n";
  }
  return text;
}

CopyTimes measure_copies(int gpu, const Shape& batch) {
  CopyTimes times;
  try {
    DeviceMemory device(Residence::kCuda, gpu), host;
    times.pageable = median_copy(device, zeros_in(host, batch));
    DeviceMemory locked(Residence::kPageLocked, gpu);
    times.page_locked = median_copy(device, zeros_in(locked, batch));
  } catch (const std::exception&) {
    // No memory for it, on the device or to be locked: then it is not known.
  }
  return times;
}

}  // namespace unisono::train
