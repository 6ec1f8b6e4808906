#include "comm/grow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/collective.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/process_facts.h"
#include "comm/init.h"
#include "comm/shrink.h"
#include "comm/split.h"
#include "config/launcher.h"
#include "rendezvous/store/growth.h"
#include "rendezvous/store/launcher_store.h"
#include "rendezvous/store/store_access.h"

namespace unisono::detail {
namespace {

using rendezvous::Invitation;
using std::chrono::milliseconds;

std::string job_place(std::string_view name, std::string_view job) {
  return fmt::format("{}/{}", name, job);
}

Call first_call(milliseconds timeout) {
  return {.collective = Collective::kBarrier,
          .options = {.timeout = timeout, .algorithm = kAutomaticAlgorithm}};
}

Status against(Rank rank, const Status& why) {
  return {ErrorCode::kRendezvous,
          fmt::format("rank {} could not join the grown communicator: {}", rank, why.message()),
          rank};
}

// A member of `parent`, which grows.
class GrowingMember final : public rendezvous::GrowingGroup {
 public:
  GrowingMember(CommunicatorState& parent, Store& store, std::string_view name)
      : parent_(parent), store_(store), name_(name) {}

  std::shared_ptr<CommunicatorState> take_grown() { return std::move(grown_); }

  Rank rank() const override { return parent_.rank(); }
  int size() const override { return parent_.size(); }
  Status call(Collective collective, const void* in, void* out, std::size_t bytes,
              milliseconds timeout) override {
    return parent_
        .run({.collective = collective,
              .in = in,
              .out = out,
              .count = bytes,
              .options = {.timeout = timeout, .algorithm = kAutomaticAlgorithm}})
        .status;
  }
  // A member that is lost meanwhile will not come.
  Status go_on() override {
    Runtime& runtime = parent_.runtime();
    runtime.engine().beat();
    {
      const Engine::Lock lock(runtime.engine());
      runtime.news().poll_arbiter();
    }
    UNISONO_TRY(parent_.status());
    const Status vote = voters_ == nullptr ? Status() : voters_->status();
    // Who has met the others ends it too, and by another word.
    return vote.code() == ErrorCode::kRendezvous ? vote : Status();
  }
  bool has_ended(const std::string& process) override { return unisono::has_ended(process); }

  Status prepare_vote() override {
    UNISONO_ASSIGN(voters_, split(parent_, 0, parent_.rank()));
    return Status();
  }
  // The arbiter tells the others: who only closes it may be waited for.
  void vote_against(const Status& why) override {
    {
      const Engine::Lock lock(parent_.runtime().engine());
      voters_->fail(against(parent_.rank(), why), JobCommunicator::Tell::kEveryone);
    }
    voters_->close();
  }
  Result<int> vote(milliseconds patience) override {
    UNISONO_ASSIGN(const auto joiners, shrink(*voters_, patience));
    joiners->close();
    return joiners->size();
  }
  void end_vote() override { voters_->close(); }

  Status meet(const Invitation& place, const std::function<Status()>& go_on) override {
    UNISONO_ASSIGN(grown_,
                   join_at_store(parent_.runtime().config(), parent_.runtime().wished_device(),
                                 {.store = store_,
                                  .name = job_place(name_, place.job),
                                  .rank = place.rank,
                                  .size = place.size,
                                  .go_on = go_on,
                                  .comes_once = true},
                                 later(Clock::now(), place.timeout)));
    return Status();
  }
  void leave_new() override {
    grown_->close();
    grown_.reset();
  }
  void use_new(milliseconds timeout) override {
    static_cast<void>(grown_->run(first_call(timeout)));
  }

 private:
  CommunicatorState& parent_;
  Store& store_;
  const std::string name_;
  std::shared_ptr<CommunicatorState> voters_, grown_;
};

}  // namespace

Result<std::shared_ptr<CommunicatorState>> grow(CommunicatorState& parent, Store& store,
                                                std::string_view name, const GrowOptions& options) {
  GrowingMember member(parent, store, name);
  UNISONO_ASSIGN(
      const bool has_grown,
      rendezvous::Growth(member, store, name, options, parent.runtime().config().timeout).run());
  return has_grown ? member.take_grown() : nullptr;
}

namespace {

Result<std::shared_ptr<CommunicatorState>> rejoin_by(TimePoint deadline, Store& store,
                                                     std::string_view name, int key,
                                                     const Config& config, int device) {
  std::shared_ptr<CommunicatorState> grown;
  const auto accept = [&](const Invitation& place, TimePoint meet_by,
                          const std::function<Status()>& go_on, milliseconds timeout) -> Status {
    UNISONO_ASSIGN(grown, join_at_store(config, device,
                                        {.store = store,
                                         .name = job_place(name, place.job),
                                         .rank = place.rank,
                                         .size = place.size,
                                         .go_on = go_on,
                                         .comes_once = true,
                                         .is_newcomer = true},
                                        meet_by));
    Status used = grown->run(first_call(timeout)).status;
    if (!used) std::exchange(grown, nullptr)->close();
    return used;
  };
  UNISONO_TRY(rendezvous::enter_group(store, name, key, process_name(), deadline, accept));
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

void tell_launcher_of_meeting(const Config& config, int size) {
  if (config.launcher_store.empty() || config.rejoin) return;
  const Result<LauncherVariables> launched = LauncherVariables::from_environment();
  if (!launched || launched->world_size != size || size == 1) return;
  rendezvous::LauncherStore store(config.launcher_store);
  const Status told =
      rendezvous::set_in_store(store, rendezvous::met_key(launched->restarts), "yes");
  if (!told) log::warning(told.message());
}

}  // namespace unisono::detail
