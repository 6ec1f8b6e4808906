#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "unisono/unisono.h"

namespace unisono {
namespace {

class TwoRanks : public testing::TestWithParam<const char*> {};

TEST_P(TwoRanks, AllReduceOfInt64AddsElementwise) {
  spawn(
      2,
      [](Communicator& comm) {
        std::vector<std::int64_t> data = comm.rank() == 0 ? std::vector<std::int64_t>{1, 2}
                                                          : std::vector<std::int64_t>{3, 4};
        comm.all_reduce(data, sum);
        EXPECT_EQ(data, (std::vector<std::int64_t>{4, 6}));
      },
      {.transport = GetParam(), .timeout = std::chrono::seconds(10)});
}

INSTANTIATE_TEST_SUITE_P(Transports, TwoRanks, testing::Values("auto", "loopback", "unix", "tcp"));

}  // namespace
}  // namespace unisono
