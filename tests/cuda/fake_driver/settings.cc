#include "tests/cuda/fake_driver/settings.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace fake_cuda {
namespace {

std::string read(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const char* name, const std::string& value) {
  std::fprintf(stderr, "fake CUDA driver: cannot understand %s=%s\n", name, value.c_str());
  _exit(70);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string text = read(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (*end == 'K') value <<= 10, ++end;
  if (*end == 'M') value <<= 20, ++end;
  if (*end == 'G') value <<= 30, ++end;
  if (*end != '\0') refuse(name, text);
  return value;
}

// Which of `words` the variable has; the first one where it is unset.
std::size_t choice(const char* name, const std::vector<const char*>& words) {
  const std::string text = read(name);
  if (text.empty()) return 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (text == words[i]) return i;
  }
  refuse(name, text);
}

// As the real driver: numbers or the beginnings of UUIDs, and the list ends at the first that names
// no device.
std::vector<int> visible_devices(int physical) {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> devices;
  if (text == nullptr) {
    for (int i = 0; i < physical; ++i) devices.push_back(i);
    return devices;
  }
  for (const std::string& part : split(text)) {
    char* end = nullptr;
    long device = std::strtol(part.c_str(), &end, 10);
    if (part.starts_with("GPU-")) device = std::strtol(part.c_str() + 4, &end, 16) - 1;
    const bool is_uuid = part.starts_with("GPU-");
    if ((!is_uuid && *end != '\0') || device < 0 || device >= physical) break;
    devices.push_back(static_cast<int>(device));
  }
  return devices;
}

std::vector<Injection> injections() {
  std::vector<Injection> list;
  for (const std::string& part : split(read("FAKE_CUDA_FAIL"))) {
    const std::size_t colon = part.find(':');
    const std::size_t equals = part.find('=');
    if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
      refuse("FAKE_CUDA_FAIL", part);
    }
    std::string name = part.substr(0, colon);
    if (name.ends_with("_v2")) name.resize(name.size() - 3);
    list.push_back({name, std::strtoull(part.c_str() + colon + 1, nullptr, 10),
                    static_cast<CUresult>(std::atoi(part.c_str() + equals + 1))});
  }
  return list;
}

Settings read_settings() {
  Settings s;
  s.version = static_cast<int>(number("FAKE_CUDA_VERSION", 13000));
  s.physical_devices = static_cast<int>(number("FAKE_CUDA_DEVICES", 1));
  if (s.physical_devices < 0 || s.physical_devices > kDevicesMax) {
    refuse("FAKE_CUDA_DEVICES", read("FAKE_CUDA_DEVICES"));
  }
  s.devices = visible_devices(s.physical_devices);
  s.peers = choice("FAKE_CUDA_P2P", {"all", "none"}) == 0;
  s.memory_bytes = number("FAKE_CUDA_MEMORY", s.memory_bytes);
  for (std::string name : split(read("FAKE_CUDA_MISSING"))) {
    if (name.ends_with("_v2")) name.resize(name.size() - 3);
    s.missing.insert(name);
  }
  s.injections = injections();
  s.leaks = static_cast<Settings::Leaks>(choice("FAKE_CUDA_LEAKS", {"report", "fail", "ignore"}));
  s.slice_file = read("FAKE_CUDA_SLICE");
  s.delay_us = static_cast<int>(number("FAKE_CUDA_DELAY_US", 30));
  s.seed = number("FAKE_CUDA_SEED", 1);
  s.reuse_addresses = choice("FAKE_CUDA_ADDRESSES", {"fresh", "reuse"}) == 1;
  const std::size_t memops = choice("FAKE_CUDA_MEMOPS", {"on", "off", "32"});
  s.stream_memops = memops != 1;
  s.wide_memops = memops == 0;
  s.file_handles = choice("FAKE_CUDA_FILE_HANDLES", {"on", "off"}) == 0;
  const std::size_t buffer_ids = choice("FAKE_CUDA_BUFFER_IDS", {"on", "off", "plain"});
  s.buffer_ids = buffer_ids != 1;
  s.window_ids = buffer_ids == 0;
  s.dma_buf = choice("FAKE_CUDA_DMA_BUF", {"off", "on"}) == 1;
  s.queues = static_cast<int>(number("FAKE_CUDA_QUEUES", 0));
  s.queue_depth = number("FAKE_CUDA_QUEUE_DEPTH", s.queue_depth);
  if (s.queue_depth == 0) refuse("FAKE_CUDA_QUEUE_DEPTH", "0");
  s.page_locking_waits = choice("FAKE_CUDA_PAGE_LOCKING", {"free", "waits"}) == 1;
  s.trace = number("FAKE_CUDA_TRACE", 0) != 0;
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings* const value = new Settings(read_settings());
  return *value;
}

}  // namespace fake_cuda
