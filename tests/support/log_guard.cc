// Collects what the library logs while a LogGuard lives. The library's hook is a plain function, so
// the lines are kept here, under a mutex: ranks on several threads may log.
#include "tests/support/log_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "base/log.h"

namespace unisono::test {
namespace {

std::mutex mutex;
std::vector<std::string> collected;

void collect(log::Level, std::string_view message) {
  const std::lock_guard lock(mutex);
  collected.emplace_back(message);
}

}  // namespace

LogGuard::LogGuard() {
  const std::lock_guard lock(mutex);
  collected.clear();
  log::set_hook(&collect);
}

LogGuard::~LogGuard() {
  log::set_hook(nullptr);
  for (const std::string& line : lines()) {
    const bool known = std::any_of(expected_.begin(), expected_.end(), [&](const auto& part) {
      return line.find(part) != std::string::npos;
    });
    if (!known) ADD_FAILURE() << "an unexpected line was logged: " << line;
  }
}

std::vector<std::string> LogGuard::lines() const {
  const std::lock_guard lock(mutex);
  return collected;
}

}  // namespace unisono::test
