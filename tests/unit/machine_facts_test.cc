// The text in which facts are kept: it says all, and nothing else is taken for it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/fnv.h"
#include "machine/facts_text.h"
#include "topology/processor_model.h"

namespace unisono::machine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t index_of(Collective collective) { return static_cast<std::size_t>(collective); }

Facts some_facts() {
  Facts facts{
      .identity = {
          "A processor, family 25 model 1 stepping 1", "6.18.5", 2, 1.5, 2, 2, "a-host", {1, 1}}};
  facts.trials.host.waits = {310, 742};
  facts.trials.host.copies[1] = {21022, 61120, 30000, 31000, 0, 12000};
  facts.trials.calls[index_of(Collective::kAllGather)][11] = {61022, 58110, 40213, 0};
  facts.trials.calls[index_of(Collective::kAllReduce)][0] = {1, 2'000'000'000, 0, 0};
  // Mapped memory was far behind, so long rows left it out.
  facts.trials.calls[index_of(Collective::kScatter)][13] = {0, 50'123, 55'001, 0};
  facts.trials.messages[0] = {80120, 52071};
  facts.trials.pieces[3] = {4'000'000'000, 190022};
  return facts;
}

/// The same lines with a sum that is right.
std::string with_sum(const std::string& text) {
  const std::string lines = text.substr(0, text.rfind("sum "));
  return lines + fmt::format("sum {:016x}\n", fnv1a_64(lines));
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
  return with_sum(text);
}

TEST(FactsText, SaysAllThatIsKnown) {
  const std::string text = text_of(some_facts());
  EXPECT_THAT(text, AllOf(HasSubstr("call all_gather 1048576 mapped=61022 streamed=58110 "
                                    "single_copy=40213 window=0\n"),
                          HasSubstr("wait 64 exchange=310 kernel=742\n"),
                          HasSubstr("copy 262144 write=21022 read=61120 streamed_write=30000 "
                                    "streamed_read=31000 kernel=0 local=12000\n"),
                          HasSubstr("message 131072 ring=80120 lent=52071\n"),
                          HasSubstr("piece 8192 cached=4000000000 streamed=190022\n"),
                          HasSubstr("quota 1.500\n"), Not(HasSubstr("broadcast"))));
  const Result<Facts> again = parse_facts(text);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->identity, some_facts().identity);
  EXPECT_EQ(again->trials, some_facts().trials);
}

TEST(TrialFacts, LearnWhatAnyWayTook) {
  TrialFacts facts{};
  learn(facts, some_facts().trials);
  EXPECT_EQ(facts.calls, some_facts().trials.calls);
  learn(facts, TrialFacts{});
  EXPECT_EQ(facts.calls, some_facts().trials.calls);
}

TEST(FactsText, ThatSaysAllFitsItsBound) {
  Facts facts = some_facts();
  for (auto& sizes : facts.trials.calls) sizes.fill({~0u, ~0u, ~0u, ~0u});
  facts.trials.host.waits.fill(~0u);
  for (auto& times : facts.trials.host.copies) times.fill(~0u);
  facts.trials.messages.fill({~0u, ~0u});
  facts.trials.pieces.fill({~0u, ~0u});
  const std::string text = text_of(facts);
  EXPECT_LE(text.size(), kTextBytesMax);
  const Result<Facts> again = parse_facts(text);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->trials, facts.trials);
}

TEST(FactsText, IsRefusedWhereAnyByteIsMissingOrMore) {
  const std::string text = text_of(some_facts());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_FALSE(parse_facts(text.substr(0, bytes))) << bytes;
    EXPECT_FALSE(parse_facts(text.substr(text.size() - bytes))) << bytes;
  }
  EXPECT_FALSE(parse_facts(text + "\n"));
  EXPECT_FALSE(parse_facts(text + text));
  EXPECT_FALSE(parse_facts(text + std::string(kTextBytesMax, ' ')));
}

TEST(FactsText, IsRefusedWhereAnyBitIsAnother) {
  const std::string text = text_of(some_facts());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      EXPECT_FALSE(parse_facts(damaged)) << "bit " << bit << " of byte " << at;
    }
  }
}

// Each has a right sum.
TEST(FactsText, IsRefusedWhereALineSaysWhatNobodyWrites) {
  const std::string text = text_of(some_facts());
  EXPECT_TRUE(parse_facts(with_sum(text)));
  const auto refused = [&](const std::string& what, const std::string& by) {
    const Result<Facts> facts = parse_facts(replaced(text, what, by));
    EXPECT_FALSE(facts) << by;
    return facts ? ErrorCode::kOk : facts.error().code();
  };
  EXPECT_EQ(refused("unisono machine 3", "unisono machine 2"), ErrorCode::kProtocol);
  EXPECT_EQ(refused(fmt::format("trials {}", kTrialsVersion), "trials 0"), ErrorCode::kProtocol);
  refused("host a-host\n", "");
  refused("wait 64", "wait 65");
  refused("exchange=310 kernel=742", "exchange=310");
  refused("copy 262144", "copy 262145");
  refused("kernel=0 local", "kernel= local");
  refused("caches 1\n", "caches\n");
  refused("call all_gather", "call all_together");
  refused("call all_gather", "call");
  refused("1048576", "1048577");
  refused("1048576", "99999999999999999999999");
  refused("mapped=61022", "mapped=99999999999");
  refused("mapped=61022", "mapped=-1");
  refused("mapped=61022", "mapped=061022");
  refused("cached=4000000000 streamed=190022", "cached=0 streamed=0");
  refused("mapped=", "streamed=");
  refused(" window=0", "");
  refused("window=0", "window=0 window=0");
  refused("message 131072", "massage 131072");
  refused("ring=80120", "ring=80120\n");
  refused("cpus 2\n", "");
  refused("cpus 2\n", "cpus 2.5\n");
  refused("cpus 2\n", "cpus 2\ncpus 2\n");
  refused("message 131072 ring=80120 lent=52071\n",
          "message 131072 ring=80120 lent=52071\nmessage 131072 ring=80120 lent=52071\n");
}

TEST(TrialFacts, LearnWhatIsKnownAlone) {
  TrialFacts facts = some_facts().trials;
  TrialFacts learned{};
  EXPECT_FALSE(knows_any(learned));
  learn(facts, learned);
  EXPECT_EQ(facts, some_facts().trials);
  learned.messages[0] = {10, 20};
  learned.pieces[0] = {30, 40};
  learned.host.waits = {5, 6};
  learn(facts, learned);
  EXPECT_EQ(facts.host, some_facts().trials.host) << "without a copy they are not known";
  learned.host.copies[0] = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(knows_any(learned));
  learn(facts, learned);
  TrialFacts expected = some_facts().trials;
  expected.messages[0] = {10, 20};
  expected.pieces[0] = {30, 40};
  expected.host = learned.host;
  EXPECT_EQ(facts, expected);
}

TEST(Identity, IsTheSameEachTime) {
  const Identity here = read_identity("1", 4, 3);
  EXPECT_EQ(here, read_identity("1", 4, 3));
  EXPECT_NE(text_of(here), text_of(read_identity("1", 4, 4)));
  EXPECT_EQ(here.cpus, 1);
  EXPECT_FALSE(here.kernel.empty());
  EXPECT_FALSE(here.host.empty());
  EXPECT_EQ(here.processor, topology::read_processor_model());
  EXPECT_FALSE(here.processor.empty());
  EXPECT_LE(here.processor.size(), topology::kProcessorModelMax);
  EXPECT_TRUE(parse_facts(text_of(Facts{.identity = here})));
}

}  // namespace
}  // namespace unisono::machine
