// A Store of ranks that are processes: a file for each key, in a folder that is there. Any thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "unisono/rendezvous.h"

namespace unisono::test {

class FolderStore : public Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(std::string_view key, std::string_view value) override {
    const std::filesystem::path path = path_of(key);
    // Whoever reads finds all of the value or nothing.
    const std::string part = path.string() + "." + std::to_string(::getpid());
    std::ofstream(part, std::ios::binary) << value;
    std::filesystem::rename(part, path);
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      std::ifstream file(path_of(key), std::ios::binary);
      if (file) return std::string(std::istreambuf_iterator<char>(file), {});
      if (std::chrono::steady_clock::now() >= until) return "";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::filesystem::path path_of(std::string_view key) const {
    std::string name(key);
    std::replace(name.begin(), name.end(), '/', '+');
    return folder_ / name;
  }

  const std::filesystem::path folder_;
};

}  // namespace unisono::test
