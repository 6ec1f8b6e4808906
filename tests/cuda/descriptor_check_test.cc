// What a member may tell of its buffers before kernels touch them: everything a correct one tells
// is taken, and whoever tells less than its call needs is named.
#include "cuda/collectives/descriptor_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/call_check.h"
#include "cuda/collectives/hierarchical_call.h"

namespace unisono::device {
namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kCount = 4;  // of each block

struct Told {
  Descriptor descriptor;
  DescriptorCounts counts{};
};
static_assert(sizeof(Told) == sizeof(Descriptor) + sizeof(DescriptorCounts));

class ToldOfACall {
 public:
  // As correct members make it and tell of it.
  explicit ToldOfACall(Collective collective)
      : counts_(kRanks, kCount), buffers_(2, std::vector<float>(kRanks * kCount)), told_(kRanks) {
    call_ = {.collective = collective,
             .in = buffers_[0].data(),
             .out = buffers_[1].data(),
             .count = kCount,
             .type = DataType::kFloat32,
             .op = ops::sum,
             .root = 1};
    const bool is_uneven = facts_of(collective).is_uneven;
    if (is_uneven) call_.in_counts = call_.out_counts = counts_;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      CallShape shape;
      Call theirs = call_;
      if (facts_of(collective).in_place == InPlace::kAlways) theirs.in = theirs.out;
      EXPECT_TRUE(check_call(theirs, rank, kRanks, &shape)) << name_of(collective);
      of(rank).input_bytes = shape.input_bytes;
      of(rank).output_bytes = shape.output_bytes;
      of(rank).count = kCount;
      for (std::uint64_t i = 0; is_uneven && i < kRanks; ++i) {
        DescriptorCounts& counts = counts_of(rank);
        counts.input_counts[i] = counts.output_counts[i] = kCount;
        counts.input_displacements[i] = counts.output_displacements[i] = i * kCount;
      }
    }
  }

  Descriptor& of(Rank rank) { return told_[static_cast<std::size_t>(rank)].descriptor; }
  DescriptorCounts& counts_of(Rank rank) { return told_[static_cast<std::size_t>(rank)].counts; }
  Status check() const {
    return check_told(call_, {std::as_bytes(std::span(told_)), sizeof(Told)});
  }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::vector<float>> buffers_;
  std::vector<Told> told_;
  Call call_;
};

void expect_refused(const ToldOfACall& told, Rank rank, const char* words) {
  const Status refused = told.check();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kProtocol);
  EXPECT_EQ(refused.rank(), rank);
  EXPECT_THAT(refused.message(), testing::HasSubstr(words));
}

class DescriptorCheck : public testing::TestWithParam<int> {
 protected:
  Collective collective() const { return static_cast<Collective>(GetParam()); }
};

TEST_P(DescriptorCheck, TakesWhatCorrectMembersTell) {
  EXPECT_TRUE(ToldOfACall(collective()).check()) << ToldOfACall(collective()).check().message();
}

TEST_P(DescriptorCheck, NamesAMemberWhoseBufferIsTooShort) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    for (auto Descriptor::*bytes : {&Descriptor::input_bytes, &Descriptor::output_bytes}) {
      ToldOfACall told(collective());
      // All members of a broadcast tell of its one buffer; only the root's is read.
      const bool is_unread =
          collective() == Collective::kBroadcast && rank != 1 && bytes == &Descriptor::input_bytes;
      if (told.of(rank).*bytes == 0 || is_unread) continue;
      told.of(rank).*bytes -= 1;
      const bool has_counts = facts_of(collective()).is_uneven;
      expect_refused(told, rank, has_counts ? "rank" : "elements of 4 bytes");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, DescriptorCheck,
                         testing::Range(0, static_cast<int>(Collective::kSend)),
                         [](const auto& instance) {
                           return std::string(name_of(static_cast<Collective>(instance.param)));
                         });

TEST(DescriptorCheckOfBlocks, NamesAMemberWithABlockOutsideOfItsBuffer) {
  constexpr auto kInput = &DescriptorCounts::input_displacements;
  constexpr auto kOutput = &DescriptorCounts::output_displacements;
  struct Case {
    Collective collective;
    decltype(kInput) numbers;
    Rank rank;  // the root where there is one
  };
  for (const Case& each : {Case{Collective::kAllToAllV, kInput, 2},
                           {Collective::kAllToAllV, kOutput, 2},
                           {Collective::kReduceScatterV, kInput, 2},
                           {Collective::kAllGatherV, kOutput, 2},
                           {Collective::kScatterV, kInput, 1},
                           {Collective::kGatherV, kOutput, 1}}) {
    SCOPED_TRACE(name_of(each.collective));
    for (const std::uint64_t wrong : {2 * kCount + 1, UINT64_MAX, UINT64_MAX / 4}) {
      ToldOfACall told(each.collective);
      (told.counts_of(each.rank).*each.numbers)[1] = wrong;
      expect_refused(told, each.rank, "a block outside of its buffer");
    }
  }
}

TEST(DescriptorCheckOfBlocks, LooksAtNoArrayThatTheCallDoesNotUse) {
  ToldOfACall told(Collective::kGatherV);
  told.counts_of(2).output_counts[1] = UINT64_MAX;  // the root's alone count
  told.counts_of(1).input_counts[1] = UINT64_MAX;
  EXPECT_TRUE(told.check());
}

TEST(DescriptorCheckOfBlocks, NamesAMemberThatCalledWithAnotherCount) {
  ToldOfACall told(Collective::kAllToAllV);
  told.counts_of(2).input_counts[0] = kCount - 1;
  const Status refused = told.check();
  EXPECT_EQ(refused.code(), ErrorCode::kMismatch);
  EXPECT_THAT(refused.message(), testing::HasSubstr("rank 2 called all_to_all_v with 3 elements"));
}

TEST(HostGroupNumbers, NamesTheMemberThatGaveNone) {
  const HostLayout layout{.local = {2, 3}, .across = {0, 2}};
  EXPECT_TRUE(HierarchicalCall::check_ids(layout, {.local = 5, .across = 6}));
  const Status no_local = HierarchicalCall::check_ids(layout, {.local = 0, .across = 6});
  EXPECT_EQ(no_local.code(), ErrorCode::kProtocol);
  EXPECT_EQ(no_local.rank(), 2);
  const Status no_across = HierarchicalCall::check_ids(layout, {.local = 5, .across = 0});
  EXPECT_EQ(no_across.code(), ErrorCode::kProtocol);
  EXPECT_EQ(no_across.rank(), 0);
}

}  // namespace
}  // namespace unisono::device
