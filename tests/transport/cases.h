// The claims of transports/transport.h, one function each. A case is run by `ranks` ranks at once,
// each with its own Seat; its name is the claim.
#pragma once

#include <string>
#include <vector>

#include "tests/transport/seat.h"

namespace unisono::test {

struct ConformanceCase {
  std::string claim;
  int ranks;
  void (*body)(Seat&);
};

const std::vector<ConformanceCase>& conformance_cases();
/// Null when there is none of that name.
const ConformanceCase* find_case(const std::string& claim);

// The cases by theme, one file each.
std::vector<ConformanceCase> traffic_cases();
std::vector<ConformanceCase> pressure_cases();
std::vector<ConformanceCase> closing_cases();

}  // namespace unisono::test
