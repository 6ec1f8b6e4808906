// A variable of the environment while this lives; what it was before comes back. Thread rule: while
// no other thread reads the environment.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace unisono::test {

class Setting {
 public:
  Setting(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Setting() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Setting(const Setting&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace unisono::test
