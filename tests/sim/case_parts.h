// What cases of all kinds are made of.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/case.h"
#include "tests/sim/random.h"

namespace unisono::sim {

Network any_network(Random& random);
/// A collective by an algorithm.
Operation any_operation(Random& random, const Case& c);

// case_partitions.cc
void add_partition(Random& random, Case* c);
/// Perhaps, where there is one.
void add_second_partition(Case* c);

// case_limits.cc
void choose_limits(Case* c);

// growing_case.cc
Case make_growing_case(std::uint64_t seed, const Limits& limits);
/// Smaller ones in what growing adds.
void add_smaller_growing(const Case& c, std::vector<Case>* cases);
std::string describe(const Growing& growing);

}  // namespace unisono::sim
