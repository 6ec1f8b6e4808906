// Which transports a suite runs over: those listed here, or those that TEST_TRANSPORTS names,
// separated by commas. So the suites run unchanged where there are devices that most machines lack.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::test {

/// What every machine has. A transport that is added here is tested by every suite whose ranks can
/// use it.
inline constexpr std::string_view kTransportsOfEveryMachine[]{"auto", "loopback", "shm", "unix",
                                                              "tcp"};

/// All of them but `left_out`. The suite says why.
inline std::vector<std::string> tested_transports_but(
    std::initializer_list<std::string_view> left_out) {
  std::vector<std::string> transports;
  if (const char* asked = std::getenv("TEST_TRANSPORTS"); asked != nullptr && *asked != '\0') {
    std::istringstream text(asked);
    for (std::string name; std::getline(text, name, ',');) transports.push_back(name);
    return transports;
  }
  for (const std::string_view name : kTransportsOfEveryMachine) {
    if (std::find(left_out.begin(), left_out.end(), name) == left_out.end()) {
      transports.emplace_back(name);
    }
  }
  return transports;
}

/// Of ranks that are threads of one process: there `auto` is shared memory.
inline std::vector<std::string> tested_transports() { return tested_transports_but({"shm"}); }

/// Of ranks that are processes: loopback is between threads.
inline std::vector<std::string> tested_transports_of_processes() {
  return tested_transports_but({"loopback"});
}

}  // namespace unisono::test
