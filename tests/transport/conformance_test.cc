// One suite for every transport: each claim of cases.h, over each transport of factories.cc, with
// ranks as threads and, where the transport can, as processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <ostream>

#include "tests/support/log_guard.h"
#include "tests/transport/world_runner.h"
#include "tests/verbs/verbs_kinds.h"
#include "transports/loopback/loopback_transport.h"

namespace unisono::test {

const std::vector<ConformanceCase>& conformance_cases() {
  static const std::vector<ConformanceCase> cases = [] {
    std::vector<ConformanceCase> all;
    for (const auto& part : {traffic_cases(), pressure_cases(), closing_cases()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return cases;
}

const ConformanceCase* find_case(const std::string& claim) {
  for (const ConformanceCase& candidate : conformance_cases()) {
    if (candidate.claim == claim) return &candidate;
  }
  return nullptr;
}

namespace {

struct Variant {
  const TransportKind* kind;
  bool processes;
  const ConformanceCase* conformance_case;
};

std::string name_of(const Variant& variant) {
  return variant.kind->name + (variant.processes ? "_processes_" : "_threads_") +
         variant.conformance_case->claim;
}

void PrintTo(const Variant& variant, std::ostream* out) { *out << name_of(variant); }

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (const TransportKind& kind : transport_kinds()) {
    for (const bool processes : {false, true}) {
      if (processes && !kind.across_processes) continue;
      for (const ConformanceCase& conformance_case : conformance_cases()) {
        variants.push_back({&kind, processes, &conformance_case});
      }
    }
  }
  return variants;
}

class Transports : public testing::TestWithParam<Variant> {};

TEST_P(Transports, KeepTheContract) {
  const LogGuard quiet;
  const auto& [kind, processes, conformance_case] = GetParam();
  if (processes) {
    run_as_processes(*kind, *conformance_case);
  } else {
    run_as_threads(*kind, *conformance_case);
  }
}

// The suite runs over the ports of this machine, too, where it has any.
TEST(VerbsPorts, AreHereOrSaidToBeMissing) {
  const std::string reason = why_no_verbs_ports();
  if (!reason.empty()) GTEST_SKIP() << "no RDMA port to run over: " << reason;
  const auto& kinds = transport_kinds();
  EXPECT_TRUE(std::any_of(kinds.begin(), kinds.end(),
                          [](const auto& kind) { return kind.name == "verbs_port"; }));
}

TEST(LoopbackHub, RanksOfOneJobFindOneHub) {
  const auto first = LoopbackHub::of_job("job", 2);
  EXPECT_EQ(first, LoopbackHub::of_job("job", 2));
  EXPECT_NE(first, LoopbackHub::of_job("job", 3));
  EXPECT_NE(first, LoopbackHub::of_job("other", 2));
}

INSTANTIATE_TEST_SUITE_P(All, Transports, testing::ValuesIn(all_variants()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace unisono::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int exit_code = 0;
  if (unisono::test::run_role(argc, argv, &exit_code)) return exit_code;
  return RUN_ALL_TESTS();
}
