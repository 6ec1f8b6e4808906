// Every collective, type, meaningful operator, count and placement, over every transport and rank
// count, against the oracle. A job meets once and runs its whole share of the cases.
#include <gtest/gtest.h>

#include "tests/collective/matrix_cases.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

// UNIX sockets are the code of TCP.
const std::vector<std::string> transports = tested_transports_but({"shm", "unix"});
constexpr int kRankCounts[]{1, 2, 3, 4, 5, 8};

using Job = std::tuple<int, int>;  // indices into transports and kRankCounts

class Matrix : public testing::TestWithParam<Job> {
 protected:
  std::size_t index_of_transport() const {
    return static_cast<std::size_t>(std::get<0>(GetParam()));
  }
  std::string transport() const { return transports[index_of_transport()]; }
  int ranks() const { return kRankCounts[std::get<1>(GetParam())]; }

  void run(const std::vector<CollectiveCase>& cases) const {
    Complaints complaints;
    run_ranks(ranks(), transport(), [&](Communicator& comm) {
      for (const CollectiveCase& c : cases) {
        try {
          const std::string wrong = run_case(comm, c);
          if (!wrong.empty()) complaints.add(comm.rank(), describe(c) + ": " + wrong);
        } catch (const Error& error) {
          complaints.add(comm.rank(), describe(c) + " threw " + error.what());
          throw;
        }
      }
    });
    complaints.report(transport() + " with " + std::to_string(ranks()) + " ranks");
  }
};

TEST_P(Matrix, EveryCollectiveEqualsTheOracle) {
  const auto job = index_of_transport() * std::size(kRankCounts) +
                   static_cast<std::size_t>(std::get<1>(GetParam()));
  run(cases_of_job(job, ranks()));
}

TEST_P(Matrix, MoreThanAMebibyteEqualsTheOracle) { run(large_cases(ranks())); }

INSTANTIATE_TEST_SUITE_P(Jobs, Matrix,
                         testing::Combine(testing::Range(0, static_cast<int>(transports.size())),
                                          testing::Range(0,
                                                         static_cast<int>(std::size(kRankCounts)))),
                         [](const testing::TestParamInfo<Job>& info) {
                           const auto transport = static_cast<std::size_t>(std::get<0>(info.param));
                           return transports[transport] + "_" +
                                  std::to_string(kRankCounts[std::get<1>(info.param)]);
                         });

}  // namespace
}  // namespace unisono::test
