#include "tools/common/environment.h"

#include <unistd.h>

#include <cstdlib>

namespace unisono::tools {

std::optional<std::string_view> environment_value(std::string_view name) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.size() > name.size() && text[name.size()] == '=' && text.starts_with(name)) {
      return text.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

void remove_from_environment(const char* name) { ::unsetenv(name); }

void ask_for_all_hardware_queues() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

std::vector<std::string> inherited_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

}  // namespace unisono::tools
