// The cases of the verification matrix: every collective, type, meaningful operator, count and
// placement. A job runs every (collective, type, operator) with two of the counts and placements,
// chosen so that all of them come up over the jobs; TEST_FULL=1 gives each job the whole product.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/collective/collective_case.h"

namespace unisono::test {

std::vector<CollectiveCase> cases_of_job(std::size_t job, int ranks);
/// More than a mebibyte each.
std::vector<CollectiveCase> large_cases(int ranks);

}  // namespace unisono::test
