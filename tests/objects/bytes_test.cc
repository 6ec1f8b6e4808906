// The byte forms: every object arrives as it was, whatever the sizes, bounds and transports.
#include <gmock/gmock.h>

#include <algorithm>

#include "objects/rounds.h"
#include "objects/transfer.h"
#include "tests/objects/object_bytes.h"
#include "tests/support/rank_job.h"
#include "tests/support/same_bytes.h"
#include "tests/support/setting.h"
#include "tests/support/watchdog.h"
#include "unisono/addends.h"

namespace unisono::test {
namespace {

using objects::kDirectMin;
using testing::ElementsAre;

// Sizes by rank; around a chunk of `chunk` bytes, packed and direct, in every place of the group.
std::vector<std::vector<std::size_t>> size_cases(int ranks, std::size_t chunk) {
  const std::vector<std::size_t> pool{0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk, 10 * chunk + 3};
  std::vector<std::vector<std::size_t>> cases;
  for (std::size_t shift = 0; shift < pool.size(); ++shift) {
    std::vector<std::size_t> sizes;
    for (int r = 0; r < ranks; ++r) {
      sizes.push_back(pool[(shift + static_cast<std::size_t>(r) * 3) % pool.size()]);
    }
    cases.push_back(sizes);
  }
  cases.emplace_back(static_cast<std::size_t>(ranks), 0);
  cases.emplace_back(static_cast<std::size_t>(ranks), chunk);
  return cases;
}

std::vector<ObjectBytes> objects_of(const std::vector<std::size_t>& sizes) {
  std::vector<ObjectBytes> objects;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    objects.push_back(object_of(static_cast<Rank>(r), sizes[r]));
  }
  return objects;
}

bool same_objects(const std::vector<ObjectBytes>& a, const std::vector<ObjectBytes>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bytes);
}

void check_all_forms(Communicator& comm, const std::vector<std::size_t>& sizes, Rank root,
                     const ObjectOptions& options) {
  const std::vector<ObjectBytes> objects = objects_of(sizes);
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<ObjectBytes> nothing;
  const std::vector<ObjectBytes>& at_root = comm.rank() == root ? objects : nothing;
  EXPECT_TRUE(same_objects(all_gather_objects(comm, objects[rank], options), objects));
  EXPECT_TRUE(same_objects(gather_objects(comm, objects[rank], root, options), at_root));
  EXPECT_TRUE(same_bytes(broadcast_object(comm, objects[rank], root, options),
                         objects[static_cast<std::size_t>(root)]));
  EXPECT_TRUE(same_bytes(scatter_objects(comm, at_root, root, options), objects[rank]));
}

class Objects : public testing::TestWithParam<const char*> {};

TEST_P(Objects, OfAllSizesArriveWhole) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      Rank root = 0;
      auto number = static_cast<std::size_t>(ranks);
      // A staging of `chunk` bytes for each rank.
      for (const std::size_t chunk : {2ul, 100ul, 4096ul}) {
        const ObjectOptions options{.staging_bytes = chunk * static_cast<std::size_t>(ranks)};
        for (const auto& sizes : size_cases(ranks, chunk)) {
          root = (root + 1) % ranks;
          if (is_anothers_case(++number, 2)) continue;
          check_all_forms(comm, sizes, root, options);
        }
      }
    });
  }
}

TEST_P(Objects, BeyondTheDirectSizeArriveWhole) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      const std::vector<std::size_t> pool{kDirectMin + 1, 5, kDirectMin, 3 * kDirectMin + 77, 0};
      for (std::size_t shift = 0; shift < pool.size(); shift += 2) {
        std::vector<std::size_t> sizes;
        for (int r = 0; r < ranks; ++r) {
          sizes.push_back(pool[(shift + static_cast<std::size_t>(r)) % pool.size()]);
        }
        const Rank root = static_cast<Rank>(shift) % ranks;
        check_all_forms(comm, sizes, root, {.staging_bytes = 1 << 16});
        check_all_forms(comm, sizes, root, {});
      }
    });
  }
}

TEST_P(Objects, ArriveWholeWhereTheRanksHaveDifferentBounds) {
  run_ranks(4, GetParam(), [&](Communicator& comm) {
    const ObjectOptions options{.staging_bytes = std::size_t{50} << (comm.rank() * 5),
                                .size_limit = std::uint64_t{100'000} << comm.rank()};
    const std::size_t longest = is_short_run() ? 7'777 : 77'777;  // a round for each 50 bytes
    check_all_forms(comm, {1000, 0, longest, 13}, 2, options);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Objects, testing::Values("shm", "tcp", "loopback"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Objects, WorkInPartsOfACommunicator) {
  run_ranks(5, "auto", [](Communicator& comm) {
    Communicator part = comm.split(comm.rank() % 2);
    std::vector<std::size_t> sizes;
    for (int r = 0; r < part.size(); ++r) sizes.push_back(static_cast<std::size_t>(r) * 900);
    check_all_forms(part, sizes, part.size() - 1, {});
  });
}

TEST(Rounds, GiveTheBoundToThoseThatStillSend) {
  objects::Rounds rounds({10, 0, 3}, 8);
  ASSERT_TRUE(rounds.next());
  EXPECT_THAT(rounds.counts(), ElementsAre(4, 0, 3));
  EXPECT_THAT(rounds.places(), ElementsAre(0, 4, 4));
  ASSERT_TRUE(rounds.next());
  EXPECT_THAT(rounds.counts(), ElementsAre(6, 0, 0));
  EXPECT_THAT(rounds.offsets(), ElementsAre(4, 0, 3));
  EXPECT_FALSE(rounds.next());
  EXPECT_EQ(rounds.bytes(), 0u);
}

TEST(Rounds, NeverExceedTheirBoundAndSendEverythingOnce) {
  for (const std::uint64_t bound : {1u, 2u, 3u, 7u, 64u, 1000u}) {
    for (const std::uint64_t a : {0u, 1u, 5u, 64u, 200u}) {
      for (const std::uint64_t b : {0u, 2u, 63u, 199u}) {
        objects::Rounds rounds({a, b, 17}, bound);
        std::vector<std::uint64_t> sent(3, 0);
        while (rounds.next()) {
          EXPECT_LE(rounds.bytes(), rounds.bytes_max());
          EXPECT_LE(rounds.bytes(), std::max<std::uint64_t>(bound, 3));
          for (std::size_t r = 0; r < 3; ++r) {
            EXPECT_EQ(rounds.offsets()[r], sent[r]);
            sent[r] += rounds.counts()[r];
          }
        }
        EXPECT_THAT(sent, ElementsAre(a, b, 17));
      }
    }
  }
}

// An object call is several collectives, of ranks that may be as many as an algorithm does not
// take.
TEST(Objects, AskNoAlgorithmOfTheSettings) {
  const Setting setting("UNISONO_ALGORITHM", "broadcast=bine,all_gather=recursive_doubling");
  run_ranks(3, "auto", [](Communicator& comm) {
    const ObjectBytes large = object_of(0, kDirectMin + 1);
    EXPECT_EQ(broadcast_object(comm, large, 0), large);
    EXPECT_EQ(all_gather_objects(comm, large).size(), 3u);
    const float one = 1;
    const void* const addend = &one;
    float sum = 0;
    all_reduce_addends(comm, {&addend, 1}, &sum, 1, DataType::kFloat32, ops::sum);
    EXPECT_EQ(sum, 3);
    EXPECT_TRUE(comm.status());
  });
}

}  // namespace
}  // namespace unisono::test
