// Who is taken for silent, with time as an argument.
#include <gmock/gmock.h>

#include "base/suspended.h"
#include "rendezvous/failure/silence.h"
#include "rendezvous/messages/rejoin_message.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr milliseconds kSilenceLimit{3000};
const TimePoint kFirstLook = TimePoint() + std::chrono::hours(1);

// Wakes whenever something is due until `until`; who was found silent meanwhile.
std::vector<Rank> wake_until(Silence* silence, TimePoint* now, TimePoint until,
                             const std::vector<Rank>& speaking = {}) {
  std::vector<Rank> found;
  while (*now < until) {
    *now = std::max(*now, std::min(silence->next_due(), until));
    silence->on_wake(*now);
    static_cast<void>(silence->take_beat(*now));
    for (const Rank rank : speaking) silence->on_heard(rank, *now);
    for (const Rank rank : silence->take_silent(*now)) found.push_back(rank);
  }
  return found;
}

TEST(Silence, WhoMissedABeatIsOverdue) {
  Silence silence(kSilenceLimit, kFirstLook);
  for (const Rank rank : {1, 2, 3}) silence.on_heard(rank, kFirstLook);
  silence.on_heard(2, kFirstLook + kSilenceLimit / 3);
  EXPECT_THAT(silence.overdue(kFirstLook + kSilenceLimit / 2), IsEmpty());
  EXPECT_THAT(silence.overdue(kFirstLook + kSilenceLimit * 2 / 3), ElementsAre(1, 3));
  EXPECT_THAT(silence.overdue(kFirstLook + kSilenceLimit), ElementsAre(1, 2, 3));
}

// A beat is a sixth of the limit, and a pause of up to half of it is no stop.
TEST(Silence, MissesWhoWasNotHeardForLongerThanAnyPause) {
  Silence silence(kSilenceLimit, kFirstLook);
  silence.on_heard(1, kFirstLook);
  TimePoint now = kFirstLook;
  wake_until(&silence, &now, kFirstLook + kSilenceLimit * 2 / 3);
  EXPECT_FALSE(silence.misses(1, now));
  wake_until(&silence, &now, now + milliseconds(2));
  EXPECT_TRUE(silence.misses(1, now));
  EXPECT_FALSE(silence.hears(1, now));
  wake_until(&silence, &now, kFirstLook + 2 * kSilenceLimit);
  EXPECT_TRUE(silence.misses(1, now)) << "it is silent, and no longer listened for";
  silence.on_heard(1, now);
  EXPECT_FALSE(silence.misses(1, now));
  now += kSilenceLimit;
  silence.on_wake(now);
  EXPECT_FALSE(silence.misses(1, now)) << "this side was stopped";
  EXPECT_FALSE(Silence(milliseconds(0), kFirstLook).misses(1, now)) << "silence means nothing";
}

TEST(Silence, NamesOnceWhoIsNotHeard) {
  Silence silence(kSilenceLimit, kFirstLook);
  for (const Rank rank : {1, 2, 3}) silence.on_heard(rank, kFirstLook);
  TimePoint now = kFirstLook;
  EXPECT_THAT(wake_until(&silence, &now, kFirstLook + kSilenceLimit - milliseconds(1), {1, 3}),
              IsEmpty());
  EXPECT_THAT(wake_until(&silence, &now, kFirstLook + kSilenceLimit, {1, 3}), ElementsAre(2));
  EXPECT_THAT(wake_until(&silence, &now, kFirstLook + 10 * kSilenceLimit, {1, 3}), IsEmpty());
}

TEST(Silence, ForgetsWhoLeft) {
  Silence silence(kSilenceLimit, kFirstLook);
  silence.on_heard(1, kFirstLook);
  silence.forget(1);
  TimePoint now = kFirstLook;
  EXPECT_THAT(wake_until(&silence, &now, kFirstLook + 2 * kSilenceLimit), IsEmpty());
}

TEST(Silence, ABeatIsDueSixTimesALimit) {
  Silence silence(kSilenceLimit, kFirstLook);
  silence.on_heard(1, kFirstLook);
  int beats = 0;
  for (TimePoint now = kFirstLook; now <= kFirstLook + kSilenceLimit; now += milliseconds(1)) {
    if (silence.next_due() > now) continue;
    silence.on_wake(now);
    beats += silence.take_beat(now);
  }
  EXPECT_EQ(beats, 6);
}

// Both sides were stopped, for as long as it may be, at the worst moment: just before each would
// have spoken and looked.
TEST(Silence, AnyPauseOfTheWholeJobSuspectsNobody) {
  for (milliseconds pause(0); pause < 3 * kSilenceLimit; pause += milliseconds(50)) {
    Silence silence(kSilenceLimit, kFirstLook);
    silence.on_heard(1, kFirstLook);
    TimePoint now = kFirstLook;
    wake_until(&silence, &now, kFirstLook + kSilenceLimit / 6 - milliseconds(1));
    now += pause;
    silence.on_wake(now);
    EXPECT_THAT(silence.take_silent(now), IsEmpty()) << pause.count() << " ms";
    // The other one speaks within a beat of its own.
    EXPECT_THAT(wake_until(&silence, &now, now + milliseconds(2)), IsEmpty()) << pause.count();
  }
}

TEST(Silence, AnObserverThatWasStoppedFindsASilentOneAPeriodLater) {
  Silence silence(kSilenceLimit, kFirstLook);
  silence.on_heard(1, kFirstLook);
  TimePoint now = kFirstLook + 2 * kSilenceLimit;
  silence.on_wake(now);
  EXPECT_TRUE(silence.was_stopped(now));
  EXPECT_THAT(silence.take_silent(now), IsEmpty());
  EXPECT_THAT(wake_until(&silence, &now, now + kSilenceLimit), ElementsAre(1));
  EXPECT_FALSE(silence.was_stopped(now));
}

// The machine sleeps: `now` stands still meanwhile, and those elsewhere have missed this side. The
// first look has nothing to compare with.
TEST(Silence, AnObserverWhoseMachineSleptWasStopped) {
  for (const milliseconds slept : {kSilenceLimit / 3, kSilenceLimit}) {
    Silence silence(kSilenceLimit, kFirstLook);
    silence.on_heard(1, kFirstLook);
    const Duration before = std::chrono::hours(5);
    TimePoint now = kFirstLook + milliseconds(100);
    silence.on_wake(now, before);
    EXPECT_FALSE(silence.was_stopped(now));
    now += milliseconds(400);
    silence.on_wake(now, before + slept);
    EXPECT_EQ(silence.was_stopped(now), slept == kSilenceLimit);
    EXPECT_EQ(silence.hears(1, now), slept != kSilenceLimit);
    now += kSilenceLimit / 5;
    silence.on_wake(now, before + slept);
    EXPECT_FALSE(silence.reads_old_words(now)) << "it was once";
  }
}

TEST(Suspended, KnowsHowLongTheMachineSlept) {
  const Duration slept = time_suspended();
  EXPECT_GE(slept, Duration::zero());
  EXPECT_LT(time_suspended() - slept, std::chrono::seconds(10)) << "it is awake";
}

// Else who waits until the next due time would not wait at all.
TEST(Silence, IsNotDueForWhomItForgot) {
  Silence silence(kSilenceLimit, kFirstLook);
  silence.on_heard(1, kFirstLook);
  silence.forget(1);
  const TimePoint late = kFirstLook + 2 * kSilenceLimit;
  silence.on_wake(late);
  EXPECT_TRUE(silence.take_beat(late));
  EXPECT_GT(silence.next_due(), late);
}

TEST(Silence, OfZeroIsNever) {
  Silence silence(milliseconds(0), kFirstLook);
  silence.on_heard(1, kFirstLook);
  EXPECT_EQ(silence.next_due(), kNever);
  silence.on_wake(kFirstLook + std::chrono::hours(9));
  EXPECT_FALSE(silence.take_beat(kFirstLook + std::chrono::hours(9)));
  EXPECT_THAT(silence.take_silent(kFirstLook + std::chrono::hours(9)), IsEmpty());
  EXPECT_FALSE(silence.was_stopped(kFirstLook + std::chrono::hours(9)));
}

TEST(DeposedMessage, RoundTripsAndIsChecked) {
  const std::string bytes = encode_deposed({2, kSilenceLimit});
  const std::string_view body = std::string_view(bytes).substr(5);
  const auto got = decode_deposed(body, 3);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->successor, 2);
  EXPECT_EQ(got->silence, kSilenceLimit);
  EXPECT_FALSE(decode_deposed(body, 2).has_value()) << "rank 2 of 2";
  for (std::size_t kept = 0; kept < body.size(); ++kept) {
    EXPECT_FALSE(decode_deposed(body.substr(0, kept), 3).has_value()) << kept;
  }
}

}  // namespace
}  // namespace unisono::rendezvous
