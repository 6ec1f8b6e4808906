#include "rendezvous/store/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/process_facts.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeetTime = std::chrono::seconds(30);

// What rank 0 tells a member: where it goes on, or why nobody does.
struct Seat {
  ErrorCode code = ErrorCode::kOk;
  bool is_cause = false;  // of what others say
  std::array<char, 500> why{};
  std::array<char, 40> job{};
  Rank rank = 0;
  int size = 0;  // 0: nobody has come
  milliseconds::rep timeout = 0;
};

template <std::size_t N>
void write_text(std::string_view text, std::array<char, N>* out) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(out->data(), text.data(), length);
  (*out)[length] = 0;
}

Seat refusal(const Status& why) {
  Seat seat{.code = why.code()};
  write_text(why.message(), &seat.why);
  return seat;
}

Seat seat_of(const Invitation& place) {
  Seat seat{.rank = place.rank, .size = place.size, .timeout = place.timeout.count()};
  write_text(place.job, &seat.job);
  return seat;
}

Status status_of(const Seat& seat) {
  return seat.code == ErrorCode::kOk ? Status() : Status(seat.code, seat.why.data());
}

Status check_name(std::string_view name) {
  if (!name.empty() && name.size() <= kListNameBytesMax) return Status();
  return {ErrorCode::kInvalidArgument,
          fmt::format("the group's name has {} bytes, accepted are 1 to {}", name.size(),
                      kListNameBytesMax)};
}

Status check_options(const GrowOptions& options) {
  if (options.at_least < 1 || options.at_most < options.at_least) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("at least {} and at most {} newcomers: accepted are at least 1, and no "
                        "more than at most",
                        options.at_least, options.at_most)};
  }
  if (options.wait.count() < 0 || options.timeout.count() < 0) {
    return {ErrorCode::kInvalidArgument, "a negative time"};
  }
  return Status();
}

// Newcomers wait in it from when all have met until the members have agreed.
milliseconds first_call_time(milliseconds patience) { return 2 * patience; }

}  // namespace

// ---- A member -----------------------------------------------------------------------------------

Growth::Growth(GrowingGroup& group, Store& store, std::string_view name, const GrowOptions& options,
               milliseconds call_timeout)
    : group_(group),
      store_(store),
      name_(name),
      options_(options),
      call_timeout_(std::min(call_timeout, kMeetTimeMax)) {}

Result<bool> Growth::run() {
  UNISONO_ASSIGN(const int newcomers, count_newcomers());
  if (newcomers == 0) return false;
  UNISONO_TRY(learn_processes(newcomers));
  UNISONO_TRY(group_.prepare_vote());
  const auto seat = take_seat();
  const Status made =
      seat ? agree(group_.meet(*seat, [this] { return may_all_come(); })) : seat.error();
  group_.end_vote();
  // A store may be slow: nobody waits for it in the first call.
  if (made) group_.use_new(first_call_time(patience()));
  if (leads()) settle_newcomers(made.ok());
  UNISONO_TRY(made);
  return true;
}

// All learn what rank 0 has found.
Result<int> Growth::count_newcomers() {
  Seat found;
  if (leads()) {
    auto newcomers = find_newcomers();
    if (newcomers) newcomers_ = *std::move(newcomers);
    found =
        newcomers ? Seat{.size = static_cast<int>(newcomers_.size())} : refusal(newcomers.error());
  }
  UNISONO_TRY(group_.call(Collective::kBroadcast, &found, &found, sizeof found, wait_of_others()));
  UNISONO_TRY(status_of(found));
  return found.size;
}

Result<std::vector<WaitList::Newcomer>> Growth::find_newcomers() {
  UNISONO_TRY(check_name(name_));
  UNISONO_TRY(check_options(options_));
  const int room = kWorldSizeMax - group_.size();
  const WaitList::Wanted wanted{
      .at_least = options_.at_least,
      .at_most = std::min(options_.at_most, room),
      .deadline = later(Clock::now(), std::min(options_.wait, kMeetTimeMax))};
  list_.emplace(store_, name_, random_group(),
                [this](const std::string& process) { return group_.has_ended(process); });
  UNISONO_ASSIGN(auto newcomers, list_->find(wanted, [this] { return group_.go_on(); }));
  if (static_cast<int>(newcomers.size()) < options_.at_least) newcomers.clear();
  return newcomers;
}

// Every member learns by what it sees that a newcomer on its host has ended.
Status Growth::learn_processes(int newcomers) {
  std::vector<std::array<char, kProcessNameBytesMax + 1>> told(static_cast<std::size_t>(newcomers));
  for (std::size_t i = 0; i < newcomers_.size(); ++i) {
    write_text(newcomers_[i].process, &told[i]);
  }
  UNISONO_TRY(group_.call(Collective::kBroadcast, told.data(), told.data(),
                          told.size() * sizeof told.front(), {}));
  for (const auto& each : told) processes_.emplace_back(each.data());
  return Status();
}

// Every member learns its rank in the job that rank 0 invites the newcomers to.
Result<Invitation> Growth::take_seat() {
  const auto size = static_cast<std::size_t>(group_.size());
  std::vector<int> keys(leads() ? size : 0);
  UNISONO_TRY(group_.call(Collective::kGather, &options_.key, keys.data(), sizeof(int), {}));
  std::vector<Seat> told;
  if (leads()) {
    std::vector<Invitation> seats = seats_for(keys);
    const Status invited = invite(seats);
    seats.resize(size);
    std::transform(
        seats.begin(), seats.end(), std::back_inserter(told),
        [&](const Invitation& each) { return invited ? seat_of(each) : refusal(invited); });
  }
  Seat own;
  UNISONO_TRY(group_.call(Collective::kScatter, told.data(), &own, sizeof own, {}));
  UNISONO_TRY(status_of(own));
  return Invitation{own.job.data(), own.rank, own.size, milliseconds(own.timeout)};
}

// Of the members and then of the newcomers.
std::vector<Invitation> Growth::seats_for(const std::vector<int>& member_keys) const {
  std::vector<int> keys = member_keys;
  for (const WaitList::Newcomer& newcomer : newcomers_) keys.push_back(newcomer.key);
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  const Invitation common{random_group(), 0, static_cast<int>(keys.size()), patience()};
  std::vector<Invitation> seats(keys.size(), common);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    seats[order[rank]].rank = static_cast<Rank>(rank);
  }
  return seats;
}

Status Growth::invite(const std::vector<Invitation>& seats) {
  const auto members = static_cast<std::size_t>(group_.size());
  for (std::size_t i = 0; i < newcomers_.size(); ++i) {
    UNISONO_TRY(list_->invite(newcomers_[i], seats[members + i]));
  }
  return Status();
}

// They are in, or have not all come: then those that live take another place. Where rank 0 dies
// before, those that are in cross themselves out, and those that are not are asked again.
void Growth::settle_newcomers(bool are_in) {
  for (const WaitList::Newcomer& each : newcomers_) {
    Status done = are_in ? Status() : list_->withdraw(each);
    if (done) done = list_->cross_out(each.place);
    if (!done) log::warning(done.message());
  }
}

// Who has ended will not come.
Status Growth::may_all_come() {
  UNISONO_TRY(group_.go_on());
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!group_.has_ended(processes_[i])) continue;
    has_seen_end_ = true;
    return {ErrorCode::kRendezvous,
            fmt::format("newcomer {} of {} died before all had arrived: rank {} sees that its "
                        "process has ended",
                        i, processes_.size(), group_.rank())};
  }
  return Status();
}

// Those that have joined agree, by the job's arbiter, on who they are: all of them hear the same,
// whoever dies meanwhile. The new job is used where they are all members.
Status Growth::agree(const Status& met) {
  if (!met) {
    group_.vote_against(met);
    return first_reason(met);
  }
  const Result<int> voters = group_.vote(patience());
  if (voters && *voters == group_.size()) return Status();
  group_.leave_new();
  return first_reason(voters ? Status() : voters.error());
}

// Why not all have joined: what the lowest rank says that did not, or that knows why others did
// not. The communicator works, so it is no failure of it, whichever the one of the joiner was.
Status Growth::first_reason(const Status& own) {
  Seat said = own ? Seat() : refusal(own);
  said.is_cause = has_seen_end_;
  std::vector<Seat> all(static_cast<std::size_t>(group_.size()));
  UNISONO_TRY(group_.call(Collective::kAllGather, &said, all.data(), sizeof said, {}));
  std::stable_partition(all.begin(), all.end(), [](const Seat& each) { return each.is_cause; });
  for (const Seat& each : all) {
    if (const Status why = status_of(each); !why) {
      return Status(ErrorCode::kRendezvous,
                    "not all have met in the grown communicator: " + why.message());
    }
  }
  return Status(ErrorCode::kRendezvous,
                "the members could not agree to use the grown communicator");
}

// For rank 0, which looks for newcomers. Its wrong options are refused there.
milliseconds Growth::wait_of_others() const {
  return call_timeout_ + std::clamp(options_.wait, milliseconds(0), kMeetTimeMax);
}

milliseconds Growth::patience() const {
  return options_.timeout.count() > 0 ? std::min(options_.timeout, kMeetTimeMax)
                                      : std::min(call_timeout_, kMeetTime);
}

// ---- A newcomer ---------------------------------------------------------------------------------

namespace {

// Who invites a newcomer may withdraw that, or die: then another one asks for it.
Status still_wanted(Newcomer& newcomer) {
  UNISONO_ASSIGN(const bool is_asked_again, newcomer.is_asked_again());
  if (is_asked_again) return {ErrorCode::kRendezvous, "another group asks for this newcomer"};
  UNISONO_ASSIGN(const bool is_invited, newcomer.is_invited());
  return is_invited ? Status() : Status(ErrorCode::kRendezvous, "the group has given it up");
}

// What this rank, that was to be `self`, lacks itself it would lack in every group. Of another one
// that cannot take part the arbiter names the rank, and whose settings are wrong.
bool cannot_take_part(const Status& why, Rank self) {
  const ErrorCode code = why.code();
  if (code == ErrorCode::kMismatch) return why.rank() == self;
  return why.rank() < 0 && (code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported);
}

Status enter_as(Newcomer& newcomer, TimePoint deadline, const Accept& accept) {
  // Who is invited at the last moment may still join.
  const TimePoint meet_by = later(deadline, kMeetTime);
  std::string told;
  for (;;) {
    auto invitation = newcomer.await_invitation(deadline);
    if (!invitation && !told.empty()) {
      return {invitation.error().code(),
              "no group that let this newcomer in came about; of the last one: " + told};
    }
    UNISONO_TRY(invitation.status());
    const Invitation& place = *invitation;
    const Status entered = accept(
        place, std::min(meet_by, later(Clock::now(), place.timeout)),
        [&] { return still_wanted(newcomer); }, first_call_time(place.timeout));
    if (entered || cannot_take_part(entered, place.rank) || Clock::now() >= deadline)
      return entered;
    if (std::exchange(told, entered.message()) != entered.message()) {
      log::warning("a group that let this newcomer in did not come about (" + told +
                   "): it waits for the next");
    }
    UNISONO_ASSIGN(const bool is_asked_again, newcomer.is_asked_again());
    if (!is_asked_again) UNISONO_TRY(newcomer.renew());
  }
}

}  // namespace

Status enter_group(Store& store, std::string_view name, int key, std::string_view process,
                   TimePoint deadline, const Accept& accept) {
  UNISONO_TRY(check_name(name));
  Newcomer newcomer(store, name, key, process);
  Status entered = enter_as(newcomer, deadline, accept);
  // Nobody is to wait for it any more. A store that fails here has nothing to add.
  static_cast<void>(entered ? newcomer.leave_place() : newcomer.leave());
  return entered;
}

}  // namespace unisono::rendezvous
