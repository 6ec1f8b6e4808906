// A Store of ranks that are threads. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "unisono/rendezvous.h"

namespace unisono::test {

class MapStore : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    changed_.wait_for(lock, timeout, [&] { return values_.contains(name); });
    return values_.contains(name) ? values_[name] : "";
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace unisono::test
