// The list of newcomers as a group reads it, where something changes in the store between two
// looks.
#include <gmock/gmock.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/process_facts.h"
#include "rendezvous/store/wait_list.h"
#include "tests/support/map_store.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::SizeIs;

const std::string kList = "unisono/grow/group/";
const std::string kFirst(32, 'a'), kSecond(32, 'b');

std::string entry_of(const std::string& newcomer, const std::string& process = "?") {
  return "2 " + newcomer + " 0 " + process;
}
bool nobody_has_ended(const std::string&) { return false; }

// Newcomers answer each question at once.
class AnsweringStore final : public Store {
 public:
  /// Before it is looked at this place.
  void before_look_at(int place, std::function<void()> what) {
    place_ = kList + "place/" + std::to_string(place);
    what_ = std::move(what);
  }
  void set(std::string_view key, std::string_view value) override {
    values_.set(key, value);
    const std::size_t question = key.rfind("/question");
    if (question == std::string_view::npos) return;
    const std::string newcomer(key.substr(0, question));
    values_.set(newcomer + "/" + std::string(value), "here");
  }
  std::string get(std::string_view key, milliseconds timeout) override {
    if (key == place_) std::exchange(what_, [] {})();
    return values_.get(key, timeout);
  }

 private:
  test::MapStore values_;
  std::string place_;
  std::function<void()> what_ = [] {};
};

// Both have found place 0 free, and the group sees the first one there in the meantime.
TEST(WaitList, FindsANewcomerOnceThatHasLostItsPlace) {
  AnsweringStore store;
  store.set(kList + "place/0", entry_of(kFirst));
  store.before_look_at(1, [&] {
    store.set(kList + "place/0", entry_of(kSecond));
    store.set(kList + "place/1", entry_of(kFirst));
  });
  WaitList list(store, "group", std::string(32, 'c'), nobody_has_ended);
  const auto found =
      list.find({.at_least = 1, .at_most = 2, .deadline = {}}, [] { return Status(); });
  ASSERT_TRUE(found);
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ(found->front().handle, kFirst);
  EXPECT_EQ(found->front().place, 1);
}

// Others have had that place meanwhile, and the group begins behind it.
TEST(WaitList, ANewcomerLeavesNothingInAPlaceThatIsReadNoMore) {
  AnsweringStore store;
  store.before_look_at(0, [&] {
    store.set(kList + "first", "1");
    store.before_look_at(1, [] { throw std::runtime_error("it looks for another one"); });
  });
  Newcomer newcomer(store, "group", 0, "?");
  EXPECT_THAT(newcomer.await_invitation(kNever).status().message(), HasSubstr("another one"));
  EXPECT_EQ(store.get(kList + "place/0", {}), "-");
}

// As nobody leaves it who keeps to the rules.
TEST(WaitList, GivesUpASilentNewcomerThatStandsInTwoPlaces) {
  test::MapStore store;
  for (const char* place : {"place/0", "place/1"}) store.set(kList + place, entry_of(kFirst));
  WaitList list(store, "group", std::string(32, 'c'), nobody_has_ended);
  const TimePoint end = Clock::now() + 10 * kAnswerTime;
  const auto found = list.find({.at_least = 1, .at_most = 2, .deadline = {}}, [end] {
    return Clock::now() < end ? Status() : Status(ErrorCode::kTimeout, "it does not end");
  });
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_THAT(*found, SizeIs(0));
}

// It has answered before.
TEST(WaitList, CrossesOutWhoseProcessIsSeenToHaveEnded) {
  AnsweringStore store;
  store.set(kList + "place/0", entry_of(kFirst, "ended"));
  store.set(kList + "place/1", entry_of(kSecond, "lives"));
  WaitList list(store, "group", std::string(32, 'c'),
                [](const std::string& process) { return process == "ended"; });
  const auto found =
      list.find({.at_least = 1, .at_most = 2, .deadline = {}}, [] { return Status(); });
  ASSERT_TRUE(found);
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ(found->front().handle, kSecond);
  EXPECT_EQ(found->front().process, "lives");
  EXPECT_EQ(store.get(kList + "place/0", milliseconds(0)), "-");
}

// Nor is its answer waited for.
TEST(WaitList, AsksNobodyForLongWhoseProcessHasEnded) {
  class SilentStore final : public Store {
   public:
    void set(std::string_view key, std::string_view value) override { values_.set(key, value); }
    std::string get(std::string_view key, milliseconds timeout) override {
      has_waited = has_waited || timeout > milliseconds(1);  // the least
      return values_.get(key, milliseconds(0));
    }
    bool has_waited = false;

   private:
    test::MapStore values_;
  } store;
  store.set(kList + "place/0", entry_of(kFirst, "ended"));
  WaitList list(store, "group", std::string(32, 'c'), [](const std::string&) { return true; });
  const auto found =
      list.find({.at_least = 1, .at_most = 1, .deadline = {}}, [] { return Status(); });
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, SizeIs(0));
  EXPECT_FALSE(store.has_waited);
}

// Keeps what a newcomer writes first, which is who it is, and has no room for it.
class FullStore final : public Store {
 public:
  void set(std::string_view, std::string_view value) override {
    entry = value;
    throw std::runtime_error("full");
  }
  std::string get(std::string_view, milliseconds) override { return {}; }
  std::string entry;
};

TEST(WaitList, IsToldTheProcessOfANewcomerInOneWord) {
  for (const std::string& process : {std::string("a/word"), std::string("two words"), std::string(),
                                     std::string(kProcessNameBytesMax + 1, 'x')}) {
    FullStore store;
    Newcomer newcomer(store, "group", 0, process);
    EXPECT_FALSE(newcomer.await_invitation(Clock::now() + std::chrono::hours(1)));
    const bool is_word = process == "a/word";
    EXPECT_TRUE(store.entry.ends_with(is_word ? " 0 a/word" : " 0 ?")) << store.entry;
  }
}

}  // namespace
}  // namespace unisono::rendezvous
