// Which transports a suite runs over: its own list, or those that TEST_TRANSPORTS names, separated
// by commas. So the suites run unchanged where there are devices that most machines lack.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

namespace unisono::test {

inline std::vector<std::string> tested_transports(std::initializer_list<const char*> usual) {
  const char* asked = std::getenv("TEST_TRANSPORTS");
  if (asked == nullptr || *asked == '\0') return {usual.begin(), usual.end()};
  std::vector<std::string> transports;
  std::istringstream text(asked);
  for (std::string name; std::getline(text, name, ',');) transports.push_back(name);
  return transports;
}

}  // namespace unisono::test
