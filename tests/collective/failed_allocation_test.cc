// Calls that are made of several, threads and registrations, where an allocation in their midst is
// refused: whichever it is, nothing is left behind and nobody waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/rank_job.h"
#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "unisono/addends.h"
#include "unisono/objects.h"
#include "unisono/registered_memory.h"

namespace unisono::test {
namespace {

using testing::AnyOf;

// What `run` ends with, if one of its allocations was refused.
struct Ending {
  bool was_refused = false;
  bool is_well = false;
  std::string words{};
};

template <typename Run>
Ending end_without_allocation(std::uint64_t nth, const Run& run) {
  Ending end;
  refused_allocation = nth == 0 ? 0 : allocations + nth;
  try {
    run();
    end.is_well = true;
  } catch (const std::exception& failure) {
    end.words = failure.what();
  }
  end.was_refused = allocations >= std::exchange(refused_allocation, 0);
  return end;
}

ErrorCode code_of_barrier(Communicator& comm) {
  try {
    comm.barrier();
  } catch (const Error& failure) {
    return failure.code();
  }
  return ErrorCode::kOk;
}

struct CallOfSeveral {
  const char* name;
  void (*run)(Communicator&);
};

const CallOfSeveral kCallsOfSeveral[]{
    {"all_gather_list of numbers",
     [](Communicator& comm) {
       all_gather_list(comm, std::vector<int>{1, 2});
     }},
    {"all_gather_list of texts",
     [](Communicator& comm) {
       all_gather_list(comm, std::vector<std::string>{"one", std::string(100, 'b')});
     }},
    {"scatter_values",
     [](Communicator& comm) {
       scatter_values(comm, std::vector<std::string>{"one", "two"}, 1);
     }},
    {"gather_values", [](Communicator& comm) { gather_values(comm, std::string("one"), 1); }},
    {"all_reduce_addends",
     [](Communicator& comm) {
       const std::array<std::vector<float>, 2> addends{std::vector<float>{1}, {2}};
       std::vector<float> out(1);
       all_reduce_addends(comm, addends, out, ops::sum);
     }},
};

// Before the first exchange nobody is told: the call has not been made. After the last one nobody
// waits.
TEST(FailedAllocation, InTheMidstOfACallOfSeveralIsToldToTheOthers) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  for (const CallOfSeveral& call : kCallsOfSeveral) {
    SCOPED_TRACE(call.name);
    run_ranks(2, "tcp", [&](Communicator& comm) {
      std::int32_t goes_on = 1;
      for (std::uint64_t nth = 1; goes_on != 0; ++nth) {
        Communicator other = comm.duplicate();
        const Ending end =
            end_without_allocation(comm.rank() == 0 ? nth : 0, [&] { call.run(other); });
        if (comm.rank() == 0) {
          goes_on = end.was_refused ? 1 : 0;
          const auto& calls = other.traffic().calls;
          if (calls[static_cast<std::size_t>(Collective::kAllGather)] == 0) other.abort("no call");
        }
        EXPECT_THAT(code_of_barrier(other),
                    AnyOf(ErrorCode::kOk, ErrorCode::kOutOfResources, ErrorCode::kAborted))
            << "with allocation " << nth << " refused: " << end.words;
        comm.broadcast(&goes_on, 1, DataType::kInt32, 0);
      }
    });
  }
}

TEST(FailedAllocation, OfAThreadThatIsToBeARankIsAnError) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Ending end{.was_refused = true};
  for (std::uint64_t nth = 1; end.was_refused; ++nth) {
    end = end_without_allocation(nth, [] { spawn(3, [](Communicator& comm) { comm.barrier(); }); });
  }
  EXPECT_TRUE(end.is_well);
}

TEST(FailedAllocation, OfARegistrationLeavesNone) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(2, "auto", [](Communicator& comm) {
    std::vector<std::byte> data(1 << 20);
    Ending end{.was_refused = true};
    for (std::uint64_t nth = 1; end.was_refused; ++nth) {
      end = end_without_allocation(
          nth, [&] { const RegisteredMemory memory(comm, data.data(), data.size()); });
      EXPECT_NO_THROW(RegisteredMemory(comm, data.data(), data.size()))
          << "after one with allocation " << nth << " refused";
    }
    EXPECT_TRUE(end.is_well);
  });
}

}  // namespace
}  // namespace unisono::test
