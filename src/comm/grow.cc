#include "comm/grow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/limits.h"
#include "base/log.h"
#include "comm/init.h"
#include "comm/shrink.h"
#include "comm/split.h"
#include "rendezvous/launcher_store.h"
#include "rendezvous/store_access.h"
#include "rendezvous/wait_list.h"

namespace unisono::detail {
namespace {

using rendezvous::Invitation;
using rendezvous::WaitList;
using std::chrono::milliseconds;

constexpr milliseconds kMeetTime = std::chrono::seconds(30);
// Newcomers may ask for it as well, so it says no more than a year.
constexpr milliseconds kTimeMax = std::chrono::hours(24 * 365);

// What rank 0 tells a member: where it goes on, or why nobody does.
struct Seat {
  ErrorCode code = ErrorCode::kOk;
  char why[500] = {};
  char job[40] = {};
  Rank rank = 0;
  int size = 0;  // 0: nobody has come
  milliseconds::rep timeout = 0;
};

template <std::size_t N>
void write_text(std::string_view text, char (&out)[N]) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), length);
  out[length] = 0;
}

Seat refusal(const Status& why) {
  Seat seat{.code = why.code()};
  write_text(why.message(), seat.why);
  return seat;
}

Status status_of(const Seat& seat) {
  return seat.code == ErrorCode::kOk ? Status() : Status(seat.code, seat.why);
}

Status check_name(std::string_view name) {
  if (!name.empty() && name.size() <= rendezvous::kListNameBytesMax) return Status();
  return {ErrorCode::kInvalidArgument,
          fmt::format("the group's name has {} bytes, accepted are 1 to {}", name.size(),
                      rendezvous::kListNameBytesMax)};
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

std::string job_place(std::string_view name, std::string_view job) {
  return fmt::format("{}/{}", name, job);
}

// Newcomers wait in it from when all have met until the members have agreed.
Call first_barrier(milliseconds patience) {
  return {.collective = Collective::kBarrier, .options = {.timeout = 2 * patience}};
}

// One member's way to the grown communicator.
class Growing {
 public:
  Growing(CommunicatorState& parent, Store& store, std::string_view name,
          const GrowOptions& options)
      : parent_(parent), store_(store), name_(name), options_(options) {}

  Result<std::shared_ptr<CommunicatorState>> run();

 private:
  bool leads() const { return parent_.rank() == 0; }
  Result<int> count_newcomers();
  Result<std::vector<WaitList::Newcomer>> find_newcomers();
  Result<Seat> take_seat();
  std::vector<Seat> seats_for(const std::vector<int>& member_keys) const;
  Status invite(const std::vector<Seat>& seats);
  Result<std::shared_ptr<CommunicatorState>> meet(const Seat& seat);
  Result<std::shared_ptr<CommunicatorState>> agree(
      Result<std::shared_ptr<CommunicatorState>> joined);
  Status go_on();
  void settle_newcomers(bool are_in);
  Status first_reason(const Status& own);
  milliseconds patience() const;
  milliseconds wait_of_others() const;

  CommunicatorState& parent_;
  Store& store_;
  const std::string name_;
  const GrowOptions options_;
  std::shared_ptr<CommunicatorState> voters_;  // the members, who agree by it
  std::optional<WaitList> list_;               // at rank 0
  std::vector<WaitList::Newcomer> newcomers_;  // at rank 0
};

Result<std::shared_ptr<CommunicatorState>> Growing::run() {
  UNISONO_ASSIGN(const int newcomers, count_newcomers());
  if (newcomers == 0) return std::shared_ptr<CommunicatorState>();
  UNISONO_ASSIGN(voters_, split(parent_, 0, parent_.rank()));
  auto seat = take_seat();
  auto made = seat ? agree(meet(*seat)) : Result<std::shared_ptr<CommunicatorState>>(seat.error());
  voters_->close();
  if (leads()) settle_newcomers(made.status().ok());
  if (made) {
    // Newcomers use it from here on. Its own failure is told by its next call.
    static_cast<void>((*made)->run(first_barrier(patience())));
  }
  return made;
}

// All learn what rank 0 has found.
Result<int> Growing::count_newcomers() {
  Seat found;
  if (leads()) {
    auto newcomers = find_newcomers();
    if (newcomers) newcomers_ = *std::move(newcomers);
    found =
        newcomers ? Seat{.size = static_cast<int>(newcomers_.size())} : refusal(newcomers.error());
  }
  UNISONO_TRY(parent_.run({.collective = Collective::kBroadcast,
                           .in = &found,
                           .out = &found,
                           .count = sizeof found,
                           .options = {.timeout = wait_of_others()}}));
  UNISONO_TRY(status_of(found));
  return found.size;
}

Result<std::vector<WaitList::Newcomer>> Growing::find_newcomers() {
  UNISONO_TRY(check_name(name_));
  UNISONO_TRY(check_options(options_));
  const int room = kWorldSizeMax - parent_.size();
  const WaitList::Wanted wanted{.at_least = options_.at_least,
                                .at_most = std::min(options_.at_most, room),
                                .deadline = later(Clock::now(), std::min(options_.wait, kTimeMax))};
  list_.emplace(store_, name_, rendezvous::random_group());
  UNISONO_ASSIGN(auto newcomers, list_->find(wanted, [this] { return go_on(); }));
  if (static_cast<int>(newcomers.size()) < options_.at_least) newcomers.clear();
  return newcomers;
}

// Every member learns its rank in the job that rank 0 invites the newcomers to.
Result<Seat> Growing::take_seat() {
  const auto size = static_cast<std::size_t>(parent_.size());
  std::vector<int> keys(leads() ? size : 0);
  UNISONO_TRY(parent_.run({.collective = Collective::kGather,
                           .in = &options_.key,
                           .out = keys.data(),
                           .count = 1,
                           .type = DataType::kInt32}));
  std::vector<Seat> seats;
  if (leads()) {
    seats = seats_for(keys);
    const Status invited = invite(seats);
    seats.resize(size);
    if (!invited) std::fill(seats.begin(), seats.end(), refusal(invited));
  }
  Seat own;
  UNISONO_TRY(parent_.run(
      {.collective = Collective::kScatter, .in = seats.data(), .out = &own, .count = sizeof own}));
  UNISONO_TRY(status_of(own));
  return own;
}

// Of the members and then of the newcomers.
std::vector<Seat> Growing::seats_for(const std::vector<int>& member_keys) const {
  std::vector<int> keys = member_keys;
  for (const WaitList::Newcomer& newcomer : newcomers_) keys.push_back(newcomer.key);
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  Seat common{.size = static_cast<int>(keys.size()), .timeout = patience().count()};
  write_text(rendezvous::random_group(), common.job);
  std::vector<Seat> seats(keys.size(), common);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    seats[order[rank]].rank = static_cast<Rank>(rank);
  }
  return seats;
}

Status Growing::invite(const std::vector<Seat>& seats) {
  const auto members = static_cast<std::size_t>(parent_.size());
  for (std::size_t i = 0; i < newcomers_.size(); ++i) {
    const Seat& seat = seats[members + i];
    UNISONO_TRY(
        list_->invite(newcomers_[i], {seat.job, seat.rank, seat.size, milliseconds(seat.timeout)}));
  }
  return Status();
}

// A member that is lost meanwhile will not come.
Status Growing::go_on() {
  Runtime& runtime = parent_.runtime();
  runtime.engine().beat();
  {
    const Engine::Lock lock(runtime.engine());
    runtime.news().poll_arbiter();
  }
  return parent_.status();
}

// They are in, or have not all come: then those that live take another place.
void Growing::settle_newcomers(bool are_in) {
  for (const WaitList::Newcomer& each : newcomers_) {
    Status done = are_in ? Status() : list_->withdraw(each);
    if (done) done = list_->cross_out(each.place);
    if (!done) log::warning(done.message());
  }
}

Result<std::shared_ptr<CommunicatorState>> Growing::meet(const Seat& seat) {
  return join_at_store(
      parent_.runtime().config(), parent_.runtime().wished_device(),
      {store_, job_place(name_, seat.job), seat.rank, seat.size, [this] { return go_on(); }},
      later(Clock::now(), milliseconds(seat.timeout)));
}

// Those that have joined agree, by the job's arbiter, on who they are: all of them hear the same,
// whoever dies meanwhile. The grown communicator is used where they are all members.
Result<std::shared_ptr<CommunicatorState>> Growing::agree(
    Result<std::shared_ptr<CommunicatorState>> joined) {
  if (!joined) {
    // The arbiter tells the others: who only closes it may be waited for.
    voters_->abort("rank " + std::to_string(parent_.rank()) + " could not join the grown one");
    voters_->close();
    return first_reason(joined.error());
  }
  const auto joiners = shrink(*voters_, patience());
  const bool all = joiners && (*joiners)->size() == parent_.size();
  if (joiners) (*joiners)->close();
  if (!all) {
    (*joined)->close();
    return first_reason(joiners ? Status() : joiners.error());
  }
  return joined;
}

// Why not all have joined: what the lowest rank says that did not. The communicator works, so it is
// no failure of it, whichever the one of the joiner was.
Status Growing::first_reason(const Status& own) {
  const Seat said = own ? Seat() : refusal(own);
  std::vector<Seat> all(static_cast<std::size_t>(parent_.size()));
  UNISONO_TRY(parent_.run({.collective = Collective::kAllGather,
                           .in = &said,
                           .out = all.data(),
                           .count = sizeof said}));
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
milliseconds Growing::wait_of_others() const {
  return std::min(parent_.runtime().timeout(), kTimeMax) +
         std::clamp(options_.wait, milliseconds(0), kTimeMax);
}

milliseconds Growing::patience() const {
  const milliseconds most = std::min(parent_.runtime().timeout(), kTimeMax);
  return options_.timeout.count() > 0 ? std::min(options_.timeout, kTimeMax)
                                      : std::min(most, kMeetTime);
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> grow(CommunicatorState& parent, Store& store,
                                                std::string_view name, const GrowOptions& options) {
  return Growing(parent, store, name, options).run();
}

namespace {

// The grown communicator once its members use it.
Result<std::shared_ptr<CommunicatorState>> accept(const Invitation& invitation, Config config,
                                                  int device, Store& store, std::string_view name,
                                                  TimePoint meet_by,
                                                  const std::function<Status()>& go_on) {
  UNISONO_ASSIGN(auto joined,
                 join_at_store(std::move(config), device,
                               {store, job_place(name, invitation.job), invitation.rank,
                                invitation.size, go_on},
                               std::min(meet_by, later(Clock::now(), invitation.timeout))));
  const Status used = joined->run(first_barrier(invitation.timeout));
  if (used) return joined;
  joined->close();
  return used;
}

// Who invites a newcomer may withdraw that, or die: then another one asks for it.
Status still_wanted(rendezvous::Newcomer& newcomer) {
  UNISONO_ASSIGN(const bool is_asked_again, newcomer.is_asked_again());
  if (is_asked_again) return {ErrorCode::kRendezvous, "another group asks for this newcomer"};
  UNISONO_ASSIGN(const bool is_invited, newcomer.is_invited());
  return is_invited ? Status() : Status(ErrorCode::kRendezvous, "the group has given it up");
}

}  // namespace

namespace {

Result<std::shared_ptr<CommunicatorState>> rejoin_until(TimePoint deadline,
                                                        rendezvous::Newcomer& newcomer,
                                                        Store& store, std::string_view name,
                                                        const Config& config, int device) {
  // Who is invited at the last moment may still join.
  const TimePoint meet_by = later(deadline, kMeetTime);
  for (;;) {
    UNISONO_ASSIGN(const Invitation invitation, newcomer.await_invitation(deadline));
    auto grown = accept(invitation, config, device, store, name, meet_by,
                        [&] { return still_wanted(newcomer); });
    if (grown || Clock::now() >= deadline) return grown;
    log::info("a group that let this newcomer in did not come about (" + grown.error().message() +
              "): it waits for the next");
    UNISONO_ASSIGN(const bool is_asked_again, newcomer.is_asked_again());
    if (!is_asked_again) UNISONO_TRY(newcomer.renew());
  }
}

Result<std::shared_ptr<CommunicatorState>> rejoin_by(TimePoint deadline, Store& store,
                                                     std::string_view name, int key,
                                                     const Config& config, int device) {
  UNISONO_TRY(check_name(name));
  rendezvous::Newcomer newcomer(store, name, key);
  auto grown = rejoin_until(deadline, newcomer, store, name, config, device);
  // Nobody is to wait for it any more. A store that fails again has nothing to add.
  if (!grown) static_cast<void>(newcomer.leave());
  return grown;
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> rejoin(Store& store, std::string_view name, int key,
                                                  const Config& config, int device) {
  return rejoin_by(later(Clock::now(), config.timeout), store, name, key, config, device);
}

namespace {

// Where ranks of one launcher find each other.
struct LauncherGroup {
  rendezvous::LauncherStore store;
  std::string name;
  int rank = 0;
  int restarts = 0;
};

Result<LauncherGroup> launcher_group(const std::string& store) {
  if (store.empty()) {
    return Status(ErrorCode::kUnsupported,
                  "there is no launcher's store to find newcomers in: start the ranks with "
                  "'unisono run --max-restarts N' (there is none with --restart all), or give a "
                  "store");
  }
  UNISONO_ASSIGN(const LauncherVariables variables, LauncherVariables::from_environment());
  // A run id may be longer than a name.
  return LauncherGroup{rendezvous::LauncherStore(store),
                       fmt::format("world-{:016x}", fnv1a(variables.run_id)),
                       std::max(variables.rank, 0), variables.restarts};
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> grow(CommunicatorState& parent,
                                                const GrowOptions& options) {
  UNISONO_ASSIGN(LauncherGroup group, launcher_group(parent.runtime().config().launcher_store));
  GrowOptions own = options;
  own.key = group.rank;
  return grow(parent, group.store, group.name, own);
}

Result<std::shared_ptr<CommunicatorState>> rejoin(const Config& config, int device) {
  UNISONO_ASSIGN(LauncherGroup group, launcher_group(config.launcher_store));
  UNISONO_TRY(rendezvous::set_in_store(group.store,
                                       rendezvous::waiting_key(group.rank, group.restarts), "yes"));
  // The launcher ends it when there is nobody left to let it in.
  UNISONO_ASSIGN(auto grown,
                 rejoin_by(kNever, group.store, group.name, group.rank, config, device));
  const Status told = rendezvous::set_in_store(
      group.store, rendezvous::rejoined_key(group.rank, group.restarts), "yes");
  if (!told) log::warning(told.message());
  return grown;
}

}  // namespace unisono::detail
