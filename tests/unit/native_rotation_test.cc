// What one of two ranks gives goes around their rotation (native/exchange_call.h,
// native/payload_rotation.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "native/large_call.h"
#include "native/payload_rotation.h"
#include "native_fallocate.h"
#include "native_oracle.h"

namespace unisono::test {
namespace {

using testing::IsEmpty;

// Lengths in elements: of cells, of windows, and now and then of many chunks.
std::size_t draw_count(std::minstd_rand& random) {
  if (random() % 100 == 0) return 300'001;
  return random() % 2 == 0 ? 20 + random() % 4000 : 4000 + random() % 60'000;
}

// Calls that go one way, and others between them, some times around the parts for chunks. Roots
// change, and now one rank is late, now another.
void run_rooted_calls(TestRank& rank) {
  std::minstd_rand random(24680);
  for (int i = 0; i < 600 && rank.failures.empty(); ++i) {
    const Collective rooted[] = {Collective::kBroadcast, Collective::kScatter, Collective::kGather,
                                 Collective::kReduce};
    const bool is_other = random() % 8 == 0;
    const auto& all = all_collectives();
    const Collective collective = is_other ? all[random() % all.size()] : rooted[random() % 4];
    const std::size_t count = draw_count(random);
    const Rank root = static_cast<Rank>(random() % static_cast<unsigned>(rank.size));
    if (random() % 4 == static_cast<unsigned>(rank.self)) {
      for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();  // the others are ahead
    }
    run_and_check(rank, {collective, count, root});
  }
}

class RotationByPath : public testing::TestWithParam<AccessPath> {};

TEST_P(RotationByPath, NoPlaceIsWrittenBeforeItIsRead) {
  EXPECT_THAT(run_processes(2, {.access = GetParam()}, run_rooted_calls), IsEmpty());
  EXPECT_THAT(run_threads(2, {.access = GetParam()}, run_rooted_calls), IsEmpty());
}

// They use cells, and their own windows.
TEST_P(RotationByPath, MoreRanksDoNotDisturbEachOther) {
  EXPECT_THAT(run_processes(3, {.access = GetParam()}, run_rooted_calls), IsEmpty());
}

// It gives nobody anything, so there is nothing to go around.
TEST_P(RotationByPath, ARankAloneMakesEveryCall) {
  EXPECT_THAT(run_threads(1, {.access = GetParam()},
                          [](TestRank& rank) {
                            for (const Collective collective : all_collectives()) {
                              for (const std::size_t count : {1000, 20'000}) {
                                for (int call = 0; call < 12; ++call) {
                                  run_and_check(rank, {collective, count});
                                }
                              }
                            }
                          }),
              IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Paths, RotationByPath,
                         testing::Values(AccessPath::kAutomatic, AccessPath::kWindow,
                                         AccessPath::kStreamed),
                         [](const auto& path) { return std::string(name_of(path.param)); });

TEST(Rotation, IsThreeParts) {
  const auto failures = run_threads(2, {}, [](TestRank& rank) {
    const auto opened = rank.segment->open_group(1, {0, 1});
    const shm::SegmentGroup& group = **opened;
    const auto cached = group.cached_rotation(), streamed = group.streamed_rotation(),
               payload = group.payload_rotation();
    const std::byte* const windows_end = group.window(2);
    rank.check(cached.data() == windows_end, "it begins behind the windows");
    rank.check(streamed.data() == cached.data() + cached.size(), "streamed");
    rank.check(payload.data() == streamed.data() + streamed.size(), "payload");
    rank.check(cached.size() >= shm::kCachedRotationMin && cached.size() <= shm::kCachedRotationMax,
               std::to_string(cached.size()) + " bytes");
    rank.check(payload.size() == cached.size(), std::to_string(payload.size()) + " bytes");
  });
  EXPECT_THAT(failures, IsEmpty());
}

// A writer may be a call ahead of who still reads the one before that.
TEST(Rotation, ThreePayloadsInARowAreApart) {
  const auto failures = run_threads(2, {}, [](TestRank& rank) {
    auto opened = rank.segment->open_group(1, {0, 1});
    const std::span<std::byte> memory = (*opened)->payload_rotation();
    native::PayloadRotation rotation(**opened);
    std::minstd_rand random(13579);
    std::vector<std::span<std::byte>> places;
    for (std::size_t bytes_in_all = 0; bytes_in_all < 5 * memory.size();) {
      const std::size_t bytes = shm::kInlineBytes + 1 + random() % (shm::kCellPayloadBytes - 32);
      bytes_in_all += bytes;
      rotation.next(bytes);
      const std::span<std::byte> place(rotation.place(), bytes);
      rank.check(place.data() >= memory.data() && &place.back() <= &memory.back(), "outside");
      for (std::size_t i = places.size(); i-- > 0 && i + 2 >= places.size();) {
        const auto& before = places[i];
        rank.check(&place.back() < before.data() || place.data() > &before.back(), "overlap");
      }
      places.push_back(place);
    }
  });
  EXPECT_THAT(failures, IsEmpty());
}

int refused() { return fallocate_faults.refused; }

TEST(Rotation, WithoutMemoryForItCallsGoThroughCellsAndWindows) {
  const auto body = [](TestRank& rank) {
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");  // the segment is there
    fallocate_faults.refused_min = static_cast<off_t>(shm::kCachedRotationMin);
    // Windows of two ranks are two MiB.
    rank.access = AccessPath::kWindow;
    for (int call = 0; call < 10; ++call) run_and_check(rank, {Collective::kBroadcast, 1000, 0});
    rank.check(refused() == 1, std::to_string(refused()) + " refusals for payloads");
    fallocate_faults.refused_min = 0;
    OracleCase large{Collective::kAllGather, 20'000};
    run_and_check(rank, large);  // has windows from now on
    fallocate_faults.refused_min = static_cast<off_t>(shm::kCachedRotationMin);
    for (int call = 0; call < 10; ++call) run_and_check(rank, {Collective::kBroadcast, 20'000, 0});
    rank.check(refused() == (rank.self == 0 ? 2 : 1),
               std::to_string(refused()) + " refusals with the giver's for chunks");
    fallocate_faults.refused_min = 0;
  };
  EXPECT_THAT(run_processes(2, {}, body), IsEmpty());
}

/// What a rank tells of the place of its first chunk in its first call.
void tell(shm::CellLine& line, std::uint64_t told) {
  native::Offer offer;
  std::memcpy(&offer, line.payload, sizeof offer);
  offer.input.address = told;
  std::memcpy(line.payload, &offer, sizeof offer);
}

TEST(Rotation, APlaceBeyondItIsRefused) {
  constexpr std::size_t kCount = 20'000;
  // Streamed or not, the first place behind all, and numbers that would overflow.
  for (const std::uint64_t told :
       {std::uint64_t{1} + 2 * 4096, std::uint64_t{2} + 2 * 4096, std::uint64_t{1} << 40,
        ~std::uint64_t{0}, ~std::uint64_t{0} - 1}) {
    std::atomic<bool> is_told{false};
    const auto failures = run_threads(2, {.access = AccessPath::kWindow}, [&](TestRank& rank) {
      auto opened = rank.segment->open_group(1, {0, 1});
      shm::CellLine& line = (*opened)->cell(1, 2);  // of the second call
      rank.group = std::make_unique<native::Group>(std::move(*opened));
      std::vector<std::int32_t> data(kCount);
      Call call;
      call.collective = Collective::kBroadcast;
      call.in = call.out = data.data();
      call.count = kCount;
      call.type = DataType::kInt32;
      call.root = 1;
      rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
      if (rank.self == 1) {
        static_cast<void>(rank.start(call).advance());
        tell(line, told);
        is_told = true;
        return;
      }
      while (!is_told) std::this_thread::yield();
      const Status status = rank.run(call);
      rank.check(status.code() == ErrorCode::kProtocol && status.rank() == 1,
                 std::to_string(told) + ": " + std::string(status.message()));
    });
    EXPECT_THAT(failures, IsEmpty());
  }
}

// Who has been told another root writes where it gives, and not over what the others read.
TEST(Rotation, RootsThatDisagreeDoNotOverwriteEachOther) {
  for (const bool first_is_late : {false, true}) {
    for (const std::size_t count : {2000, 20'000}) {
      const auto failures = run_processes(3, {}, [&](TestRank& rank) {
        rank.access = AccessPath::kWindow;
        rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
        std::vector<std::int32_t> data(count, rank.self);
        Call call;
        call.collective = Collective::kBroadcast;
        call.in = call.out = data.data();
        call.count = count;
        call.type = DataType::kInt32;
        call.root = rank.self == 1 ? 1 : 0;
        const bool is_late = first_is_late ? rank.self == 0 : rank.self == 1;
        for (int turn = 0; is_late && turn < 1000; ++turn) std::this_thread::yield();
        const Status status = rank.run(call);
        if (rank.self != 2 || !status.ok()) return;
        rank.check(std::all_of(data.begin(), data.end(), [](int value) { return value == 0; }),
                   "it has something of a root that it did not name");
      });
      EXPECT_THAT(failures, IsEmpty());
    }
  }
}

}  // namespace
}  // namespace unisono::test
