// Runs a conformance case with its ranks as threads of this program, or as processes that execute
// this program again with a role (never a fork that goes on: threads may exist).
#pragma once

#include <string>

#include "tests/transport/cases.h"
#include "tests/transport/factories.h"

namespace unisono::test {

void run_as_threads(const TransportKind& kind, const ConformanceCase& conformance_case);
void run_as_processes(const TransportKind& kind, const ConformanceCase& conformance_case);

/// True when this program was started as a rank; then `exit_code` is what main() returns.
bool run_role(int argc, char** argv, int* exit_code);

}  // namespace unisono::test
