// What runs a call, chosen from a table, hints and circumstances that the test makes up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "backend/call_selection.h"

namespace unisono::test {
namespace {

using algorithms::SelectionTable;
using testing::AllOf;
using testing::HasSubstr;

struct Place {
  bool shared_memory = false;
  int ranks = 4;
};

class CallSelectionTest : public ::testing::Test {
 protected:
  CallSelection selection(const Place& place) const {
    return CallSelection(
        {.table = table_,
         .hints = hints_,
         .ranks = place.ranks,
         .link = place.shared_memory ? algorithms::Link::kShm : algorithms::Link::kTcp,
         .shared_memory = place.shared_memory,
         .links = links_});
  }
  void use_table(const std::string& text) {
    Result<SelectionTable> read = SelectionTable::from_text(text);
    ASSERT_TRUE(read) << read.status().message();
    table_ = std::move(*read);
  }
  // "shared memory", the algorithm, or the error.
  static std::string chosen(CallSelection& selection, const Call& call, std::size_t bytes = 8) {
    return text_of(selection.select(call, {.agreed_bytes = bytes}));
  }
  std::string chosen(const CallOptions& options, bool shared_memory, std::size_t bytes = 8) const {
    CallSelection made = selection({.shared_memory = shared_memory});
    return chosen(made, {.collective = Collective::kAllReduce, .options = options}, bytes);
  }
  static std::string text_of(const Result<algorithms::Choice>& choice) {
    if (!choice) return choice.error().message();
    if (choice->algorithm == nullptr) return "shared memory";
    return std::string(choice->algorithm->name);
  }

  SelectionTable table_ = SelectionTable::defaults();
  algorithms::Hints hints_;
  algorithms::LinkFacts links_;
};

TEST_F(CallSelectionTest, TakesSharedMemoryOnlyWhereThereIsSome) {
  EXPECT_EQ(chosen({}, true), "shared memory");
  EXPECT_NE(chosen({}, false), "shared memory");
}

TEST_F(CallSelectionTest, FollowsTheCallsHintBeforeThatOfTheSettings) {
  hints_[static_cast<std::size_t>(Collective::kAllReduce)] = "ring";
  EXPECT_EQ(chosen({}, true), "ring");
  EXPECT_EQ(chosen({.algorithm = "native"}, true), "shared memory");
  EXPECT_THAT(chosen({.algorithm = "native"}, false), HasSubstr("native needs all ranks"));
}

TEST_F(CallSelectionTest, ExplainsWhatTheSettingsAskFor) {
  const CallSelection plain = selection({.shared_memory = true});
  EXPECT_THAT(plain.explain(Collective::kAllReduce, 8), HasSubstr("native"));
  hints_[static_cast<std::size_t>(Collective::kAllReduce)] = "ring";
  const CallSelection made = selection({.shared_memory = true});
  EXPECT_THAT(made.explain(Collective::kAllReduce, 8),
              AllOf(HasSubstr("ring in "), HasSubstr("it is asked for")));
}

TEST_F(CallSelectionTest, KeepsTheHintsOfCollectivesApart) {
  hints_[static_cast<std::size_t>(Collective::kBroadcast)] = "linear";
  CallSelection made = selection({.shared_memory = true});
  EXPECT_EQ(made.hint_for(Collective::kBroadcast, ""), "linear");
  EXPECT_EQ(made.hint_for(Collective::kBroadcast, "binomial"), "binomial");
  EXPECT_EQ(made.hint_for(Collective::kReduce, ""), "");
  EXPECT_EQ(chosen(made, {.collective = Collective::kBroadcast}), "linear");
  EXPECT_EQ(chosen(made, {.collective = Collective::kReduce}), "shared memory");
}

TEST_F(CallSelectionTest, NamesTheAlgorithmsThatThereAre) {
  EXPECT_THAT(chosen({.algorithm = "quicksort"}, false),
              AllOf(HasSubstr("quicksort"), HasSubstr("ring")));
}

// Without a hint shared memory looks at a short list that was made of the table's rows.
TEST_F(CallSelectionTest, FollowsTheTableAtEverySize) {
  use_table(
      "all_reduce shm 1 any any 64 one_shot - 0\n"
      "all_reduce shm 1 any any 4096 native auto 0\n"
      "all_reduce shm 1 any any 65536 ring - 0\n");
  CallSelection made = selection({.shared_memory = true});
  const Call call{.collective = Collective::kAllReduce};
  EXPECT_EQ(chosen(made, call, 64), "one_shot");
  EXPECT_EQ(chosen(made, call, 65), "shared memory");
  EXPECT_EQ(chosen(made, call, 4096), "shared memory");
  EXPECT_EQ(chosen(made, call, 4097), "ring");
  EXPECT_EQ(chosen(made, call, 65537), "shared memory") << "by the default row";
}

TEST_F(CallSelectionTest, PassesOverWhatAnOperatorMustNotUse) {
  use_table("all_reduce tcp 1 any any any ring - 0\n");
  CallSelection made = selection({});
  Call call{.collective = Collective::kAllReduce,
            .op = ops::user_op("matrix", [](const void*, void*, std::size_t, DataType, void*) {})};
  EXPECT_EQ(chosen(made, call), "ring");
  call.op.commutative = false;
  EXPECT_NE(chosen(made, call), "ring");
  call.options.algorithm = "ring";
  EXPECT_THAT(chosen(made, call), HasSubstr("algorithm ring of all_reduce: "));
}

// Ranks may know other bytes of such a call, and must choose alike.
TEST_F(CallSelectionTest, LooksAtNoBytesThatRanksDoNotAgreeOn) {
  use_table(
      "all_to_all_v tcp 1 any any 0 linear - 0\n"
      "all_to_all_v tcp 1 any any any pairwise - 0\n"
      "all_gather_v tcp 1 any any 0 linear - 0\n"
      "all_gather_v tcp 1 any any any ring - 0\n");
  const CallSelection made = selection({});
  EXPECT_EQ(text_of(made.select(Collective::kAllToAllV, 1 << 20)), "linear");
  EXPECT_EQ(text_of(made.select(Collective::kAllGatherV, 1 << 20)), "ring");
  EXPECT_EQ(text_of(made.preview({.collective = Collective::kAllToAllV}, 1 << 20)), "linear");
}

TEST_F(CallSelectionTest, FollowsLinksThatGetKnownLater) {
  CallSelection made = selection({});
  const Call call{.collective = Collective::kBroadcast};
  EXPECT_EQ(chosen(made, call, 64 << 10), "binomial");
  links_ = {.latency_us = 10, .bytes_per_us = 120};
  EXPECT_EQ(chosen(made, call, 64 << 10), "pipelined_chain");
}

}  // namespace
}  // namespace unisono::test
