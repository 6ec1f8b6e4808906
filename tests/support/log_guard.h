// An unexpected warning or error line fails the test: make a LogGuard first in it. One at a time;
// made and destroyed while no other thread logs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace unisono::test {

class LogGuard {
 public:
  LogGuard();
  /// Fails the test for each line that was not expected.
  ~LogGuard();
  LogGuard(const LogGuard&) = delete;
  LogGuard& operator=(const LogGuard&) = delete;

  /// Lines that contain `part` are part of the test, however many come.
  void expect(std::string part) { expected_.push_back(std::move(part)); }
  /// All lines at or above warning so far.
  std::vector<std::string> lines() const;

 private:
  std::vector<std::string> expected_;
};

}  // namespace unisono::test
