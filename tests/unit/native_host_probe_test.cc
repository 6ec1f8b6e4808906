// What the ranks of a host measure when they meet. Which times they find is nobody's to say; that
// they find them, agree, and wait for nobody longer than they may, is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "native_ranks.h"
#include "transports/shm/host_probe.h"

namespace unisono::test {
namespace {

using shm::ProbeBoard;
using shm::ProbePlaces;
using testing::Each;
using testing::IsEmpty;

constexpr Duration kPatient = std::chrono::seconds(60);

/// Boards and windows of ranks that are threads, and so copy nothing by the kernel.
class ProbedThreads {
 public:
  explicit ProbedThreads(int ranks)
      : boards_(static_cast<std::size_t>(ranks)),
        windows_(boards_.size() * shm::kWindowBytes),
        sources_(boards_.size() * shm::kProbeBytes) {}

  /// What each of the first `come` ranks finds, the last one of them until its own deadline.
  std::vector<HostFacts> probe(int come, Duration patience, Duration patience_of_last) {
    std::vector<HostFacts> found(static_cast<std::size_t>(come));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < come; ++rank) {
      const TimePoint deadline = Clock::now() + (rank + 1 < come ? patience : patience_of_last);
      threads.emplace_back([this, rank, deadline, &found] {
        found[static_cast<std::size_t>(rank)] = probe_host(places_of(rank), deadline);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return found;
  }

 private:
  ProbePlaces places_of(int rank) {
    ProbePlaces places{.self = rank};
    places.source = sources_.data() + static_cast<std::size_t>(rank) * shm::kProbeBytes;
    for (std::size_t i = 0; i < boards_.size(); ++i) {
      places.boards.push_back(&boards_[i]);
      places.windows.push_back(windows_.data() + i * shm::kWindowBytes);
    }
    return places;
  }

  std::vector<ProbeBoard> boards_;
  std::vector<std::byte> windows_, sources_;
};

TEST(HostProbe, FindsTheSameForAllRanks) {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<HostFacts> found = ProbedThreads(ranks).probe(ranks, kPatient, kPatient);
    EXPECT_THAT(found, Each(found.front()));
    EXPECT_NE(found.front().waits[kLineWait], 0u);
    EXPECT_EQ(found.front().waits[kKernelWait], 0u) << "threads need no system call";
    for (const auto& copies : found.front().copies) {
      for (const Copy copy :
           {kWriteCopy, kReadCopy, kStreamedWriteCopy, kStreamedReadCopy, kLocalCopy}) {
        EXPECT_NE(copies[copy], 0u) << kCopyNames[copy];
      }
      EXPECT_EQ(copies[kKernelCopy], 0u);
    }
  }
}

TEST(HostProbe, WaitsInVainForNobody) {
  const auto soon = std::chrono::milliseconds(20);
  EXPECT_THAT(ProbedThreads(3).probe(2, soon, soon), Each(HostFacts{}));
  EXPECT_THAT(ProbedThreads(3).probe(2, kPatient, soon), Each(HostFacts{}))
      << "who gives up says so to the others";
}

TEST(HostProbe, GivesUpAtOnceWithoutTime) {
  EXPECT_THAT(ProbedThreads(2).probe(2, Duration::zero(), Duration::zero()), Each(HostFacts{}));
}

const HostFacts kSome{.waits = {300, 700}, .copies = {{{1, 2, 3, 4, 5, 6}}}};

// Without single copies, too; what the kernel copies is then not known.
TEST(HostProbe, MeasuresWhereRanksOfProcessesMeet) {
  for (const bool single_copy : {true, false}) {
    RanksOptions options;
    options.measuring_max = kPatient;
    options.single_copy = single_copy;
    const bool copies = single_copy && processes_read_each_other();
    for (const int ranks : {2, 3}) {
      const auto failures = run_processes(ranks, options, [copies](TestRank& rank) {
        const HostFacts measured = rank.segment->measured();
        rank.check(measured.are_known(), "nothing was measured");
        rank.check((measured.waits[kKernelWait] != 0) == copies, "waits for the kernel");
        for (const auto& times : measured.copies) {
          rank.check(times[kLocalCopy] != 0, "a size was not measured");
          rank.check((times[kKernelCopy] != 0) == copies, "copies by the kernel");
        }
        rank.check(rank.segment->learned().host == measured, "the next job is told");
        rank.check(!rank.segment->known().host.are_known(), "it was not known before");
        rank.check(rank.run({Collective::kBarrier}).ok(), "a barrier");
      });
      EXPECT_THAT(failures, IsEmpty());
    }
  }
}

const RankBody kHasMeasuredNothing = [](TestRank& rank) {
  rank.check(rank.segment->measured() == HostFacts{}, "something was measured");
};

TEST(HostProbe, MeasuresNothingWhereRanksShareACore) {
  RanksOptions options;
  options.measuring_max = kPatient;
  options.cores = 2;
  EXPECT_THAT(run_processes(3, options, kHasMeasuredNothing), IsEmpty());
}

TEST(HostProbe, MeasuresNothingOfManyRanks) {
  RanksOptions options;
  options.measuring_max = kPatient;
  EXPECT_THAT(run_processes(shm::kMeasuringRanksMax + 1, options, kHasMeasuredNothing), IsEmpty());
}

TEST(HostProbe, MeasuresNothingThatIsKnown) {
  RanksOptions options;
  options.measuring_max = kPatient;
  options.known.host = kSome;
  const auto failures = run_processes(2, options, [](TestRank& rank) {
    rank.check(rank.segment->measured() == kSome, "something else than what is known");
    rank.check(!rank.segment->learned().host.are_known(), "the next job knows it, too");
  });
  EXPECT_THAT(failures, IsEmpty());
}

// Nor where the first rank does not say so.
TEST(HostProbe, MeasuresNothingOfThreadsOrUnasked) {
  RanksOptions options;
  EXPECT_THAT(run_processes(2, options, kHasMeasuredNothing), IsEmpty());
  options.measuring_max = kPatient;
  EXPECT_THAT(run_threads(2, options, kHasMeasuredNothing), IsEmpty());
  EXPECT_THAT(run_threads(1, options, kHasMeasuredNothing), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
