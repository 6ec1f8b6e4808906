// Every algorithm of the catalog by name, over rings in shared memory, in a process and TCP. Under
// a sanitizer a third of the cases of more than 3 ranks, another third for each number of ranks,
// unless TEST_FULL=1.
#include "algorithms/algorithm.h"

#include <gtest/gtest.h>

#include "tests/collective/collective_case.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using Job = std::tuple<std::string, int>;

class AlgorithmByName : public testing::TestWithParam<Job> {
 protected:
  /// Another number for each job, so that under a sanitizer the jobs have different cases.
  static std::size_t first_number(std::string_view transport, int ranks) {
    return static_cast<std::size_t>(transport[0] + ranks);
  }
};

// A refusal must be the catalog's own, and leave the communicator usable.
void run_hinted(Communicator& comm, const algorithms::Algorithm& algorithm, const CollectiveCase& c,
                Complaints* complaints) {
  plan::PlanRequest request;
  request.collective = c.collective;
  request.ranks = comm.size();
  const bool refuses = !algorithm.refuses(request).empty();
  try {
    const std::string wrong = run_case(comm, c);
    if (!wrong.empty()) complaints->add(comm.rank(), describe(c) + ": " + wrong);
    if (refuses) complaints->add(comm.rank(), describe(c) + " ran although it refuses");
  } catch (const Error& error) {
    if (refuses && error.code() == ErrorCode::kUnsupported) return;
    complaints->add(comm.rank(), describe(c) + " threw " + error.what());
    throw;
  }
}

TEST_P(AlgorithmByName, EqualsTheOracle) {
  const auto& [transport, ranks] = GetParam();
  Complaints complaints;
  run_ranks(ranks, transport, [&, transport = transport, ranks = ranks](Communicator& comm) {
    const std::size_t first = first_number(transport, ranks);
    std::size_t number = 0;
    for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
      for (const std::size_t count : {0ul, 1ul, static_cast<std::size_t>(ranks) + 1, 5003ul}) {
        for (const DataType type : {DataType::kInt32, DataType::kFloat16}) {
          CollectiveCase c{algorithm.collective, type, OpKind::kSum, count};
          c.root = static_cast<Rank>(++number % static_cast<std::size_t>(ranks));
          c.in_place = number % 3 == 0 && c.collective != Collective::kAllToAllV;
          c.displaced = number % 2 == 0 && c.collective != Collective::kReduceScatterV;
          c.options.algorithm = algorithm.name;
          if (ranks > 3 && is_anothers_case(number + first, 5)) continue;
          run_hinted(comm, algorithm, c, &complaints);
        }
      }
    }
  });
  complaints.report(std::string(transport) + " with " + std::to_string(ranks) + " ranks");
}

TEST_P(AlgorithmByName, MoreThanAMebibyteInChunksEqualsTheOracle) {
  const auto& [transport, ranks] = GetParam();
  Complaints complaints;
  run_ranks(ranks, transport, [&, transport = transport, ranks = ranks](Communicator& comm) {
    std::size_t number = first_number(transport, ranks);
    for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
      if (algorithm.collective == Collective::kBarrier ||
          is_anothers_case(++number, ranks > 5 ? 8 : 4)) {
        continue;
      }
      CollectiveCase c{algorithm.collective, DataType::kFloat32, OpKind::kSum, 300'001};
      c.options.algorithm = algorithm.name;
      run_hinted(comm, algorithm, c, &complaints);
    }
  });
  complaints.report(std::string(transport) + " with " + std::to_string(ranks) + " ranks");
}

// UNIX sockets and TCP are one transport to an algorithm, which runs over one of them.
INSTANTIATE_TEST_SUITE_P(Jobs, AlgorithmByName,
                         testing::Combine(testing::ValuesIn(tested_transports_but({"shm", "unix"})),
                                          testing::Values(1, 2, 3, 4, 5, 8)),
                         [](const testing::TestParamInfo<Job>& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(AlgorithmHint, NativeIsRefusedWithoutSharedMemory) {
  run_ranks(2, "tcp", [](Communicator& comm) {
    std::vector<int> data(3, 1);
    try {
      comm.all_reduce(data, ops::sum, {.algorithm = "native"});
      ADD_FAILURE() << "native ran over TCP";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
    comm.all_reduce(data, ops::sum);
    EXPECT_EQ(data, std::vector<int>(3, 2));
  });
}

}  // namespace
}  // namespace unisono::test
