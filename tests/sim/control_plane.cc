#include "tests/sim/control_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/failure/standby.h"
#include "tests/sim/case.h"
#include "tests/sim/control_text.h"

namespace unisono::sim {
namespace {

// In one job of so many one dial in so many has to be repeated.
constexpr std::uint64_t kJobsToLack = 8;
constexpr int kDialsToLack = 3;

}  // namespace

ControlPlane::ControlPlane(Options options, Schedule& schedule)
    : options_(std::move(options)),
      schedule_(schedule),
      random_(options_.seed),
      seats_(static_cast<std::size_t>(options_.ranks)) {
  members_.resize(seats_.size());
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Member& member = members_[static_cast<std::size_t>(rank)];
    member.rank = rank;
    member.host = member.host_name = fmt::format("host{}", options_.host_of(rank));
    member.pid = 1000 + rank;
    member.pid_namespace = 1;
    member.addresses = "probe-udp 1 10.0.0.1\n";
    if (rendezvous::may_be_standby(rank, rank % kRanksOfHost, kRanksOfHost)) {
      member.addresses += fmt::format("standby-unix {}\n", rank);
    }
  }
  standbys_ = rendezvous::choose_standbys(members_);
  for (const Rank rank : standbys_) seat(rank).listens = true;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Seat& its = seat(rank);
    const int connection = connect(rank, 0);
    auto client = std::make_unique<ControlClient>(
        members_, rank, connection, options_.silence,
        ControlNetwork{
            .dial =
                [this, rank](Rank standby, rendezvous::RejoinMessage greeting) {
                  return dial(rank, standby, std::move(greeting));
                },
            .send = [this](int to, std::string bytes) { up(to, std::move(bytes)); },
            .close = [this](int which) { close_at_rank(which); },
            .sight_of = [this](Rank whose) { return sight_of(whose); },
            .probe = [this, rank](Rank to,
                                  const rendezvous::ProbeNonce& nonce) { probe(rank, to, nonce); }},
        schedule_);
    its.client = client.get();
    // No rank looks at the members, and all of them are many in a large job.
    its.arbiter_client = std::make_unique<ArbiterClient>(
        World{.rank = rank, .size = options_.ranks, .job_id = "sim"}, std::move(client));
    arbiter(0).seat(connection, rank, schedule_.now());
    arm(rank);
  }
}

rendezvous::ProcessSight ControlPlane::sight_of(Rank rank) {
  if (seat(rank).is_dead) return rendezvous::ProcessSight::kUnseen;
  return options_.runs_at(rank) > schedule_.now() ? rendezvous::ProcessSight::kStopped
                                                  : rendezvous::ProcessSight::kRuns;
}

void ControlPlane::probe(Rank from, Rank to, const rendezvous::ProbeNonce& nonce) {
  constexpr Duration kDelay = kControlDelay / 5;
  if (options_.passes_at(from, to) > schedule_.now()) return;
  when_run(schedule_.now() + kDelay, to, [this, from, to, nonce, kDelay] {
    if (client(to).has_left() || options_.passes_at(to, from) > schedule_.now()) return;
    when_run(schedule_.now() + kDelay, from,
             [this, from, to, nonce] { client(from).on_probe_answer(to, nonce); });
  });
}

int ControlPlane::connect(Rank rank, Rank holder) {
  connections_.push_back({rank, holder});
  return static_cast<int>(connections_.size()) - 1;
}

rendezvous::ServingArbiter& ControlPlane::arbiter(Rank holder) {
  Seat& its = seat(holder);
  if (its.arbiter == nullptr) {
    const rendezvous::ServingArbiter::Options options{
        holder, holder != 0, options_.silence,
        [this, holder] { return client(holder).arbiter_heard_at(); }};
    its.arbiter = std::make_unique<rendezvous::ServingArbiter>(
        members_, options, static_cast<rendezvous::ArbiterLinks&>(*this), schedule_.now());
  }
  return *its.arbiter;
}

int ControlPlane::dial(Rank rank, Rank standby, rendezvous::RejoinMessage greeting) {
  Seat& its = seat(standby);
  // The queue is full, or the rank has no descriptor left.
  const bool may_lack = options_.seed % kJobsToLack == 0;
  if (may_lack && ++dials_ % kDialsToLack == 0) return ControlNetwork::kNoWay;
  // While the network is down for a time, some routers say so.
  const TimePoint passes = options_.passes_at(rank, standby);
  const bool is_told = (rank + standby) % 3 == 0 && passes != kNever;
  if (is_told && passes > schedule_.now()) return ControlNetwork::kNoWay;
  const bool lives_here = !its.is_dead && options_.host_of(rank) == options_.host_of(standby);
  if (its.is_dead || !its.listens) return lives_here ? ControlNetwork::kNoWay : -1;
  const int connection = connect(rank, standby);
  later(&connections_.back().up, rank, standby,
        [this, connection, standby, bytes = rendezvous::encode_rejoin(greeting, options_.ranks)] {
          rejoin(connection, standby, bytes);
        });
  return connection;
}

void ControlPlane::rejoin(int connection, Rank standby, const std::string& greeting) {
  auto told = rendezvous::decode_rejoin(body_of(greeting), options_.ranks);
  if (!told) return close_at_holder(connection);
  if (!seat(standby).listens || arbiter(standby).is_done()) {
    // It left while this was on its way.
    down(connection, rendezvous::encode(rendezvous::MessageType::kFarewell));
    return close_at_holder(connection);
  }
  arbiter(standby).on_turn(schedule_.now());
  arbiter(standby).on_rejoin(connection, std::move(*told), schedule_.now());
  arbiter(standby).on_wake(schedule_.now());
}

void ControlPlane::when_run(TimePoint when, Rank at, std::function<void()> what) {
  schedule_.at(when, [this, at, what = std::move(what)]() mutable {
    if (seat(at).is_dead) return;
    const TimePoint runs = options_.runs_at(at);
    if (runs == kNever) return;
    if (runs > schedule_.now()) return when_run(runs, at, std::move(what));
    what();
    arm(at);
  });
}

void ControlPlane::later(Way* way, Rank from, Rank to, std::function<void()> what) {
  TimePoint* const last = &way->last;
  const TimePoint passes = options_.passes_at(from, to);
  if (passes == kNever) return;
  // What is sent again brings all that waits behind it.
  const bool is_stalled = *last > schedule_.now() + kControlDelay;
  const TimePoint sent = is_stalled ? *last : std::max(schedule_.now(), passes);
  *last = std::max(*last, sent + random_.of_any_scale_up_to(kControlDelay));
  // Those that find the process stopped may come to be run in another order.
  way->waiting.push_back({std::move(what), passes > schedule_.now()});
  arrive(way, from, to, *last);
}

// What is on its way when the network goes down for good is lost, and what is sent again when it
// goes down again is so once more.
void ControlPlane::arrive(Way* way, Rank from, Rank to, TimePoint when) {
  when_run(when, to, [this, way, from, to] {
    const TimePoint passes = options_.passes_at(from, to);
    if (passes != kNever && passes > schedule_.now() && way->waiting.front().is_sent_again) {
      return arrive(way, from, to, passes);
    }
    const std::function<void()> next = std::move(way->waiting.front().what);
    way->waiting.pop_front();
    if (passes != kNever) next();
  });
}

void ControlPlane::up(int which, std::string bytes) {
  Connection& connection = connections_[static_cast<std::size_t>(which)];
  if (!connection.is_open_at_rank) return;
  const Rank holder = connection.holder;
  later(&connection.up, connection.rank, holder, [this, which, holder, bytes = std::move(bytes)] {
    if (!connections_[static_cast<std::size_t>(which)].is_open_at_holder) return;
    rendezvous::ServingArbiter& its = arbiter(holder);
    its.on_turn(schedule_.now());
    if (!its.is_seated(which)) return;
    its.on_heard(which, schedule_.now());
    its.on_message(which, {type_of(bytes), body_of(bytes)}, schedule_.now());
    its.on_wake(schedule_.now());
  });
}

void ControlPlane::down(int which, std::string bytes) {
  Connection& connection = connections_[static_cast<std::size_t>(which)];
  if (!connection.is_open_at_holder) return;
  const Rank rank = connection.rank;
  later(&connection.down, connection.holder, rank, [this, which, rank, bytes = std::move(bytes)] {
    if (!connections_[static_cast<std::size_t>(which)].is_open_at_rank) return;
    client(rank).on_message(which, bytes);
    options_.wake(rank);
  });
}

void ControlPlane::close_at_rank(int which) {
  const bool was_open =
      std::exchange(connections_[static_cast<std::size_t>(which)].is_open_at_rank, false);
  if (was_open) tell_holder_of_end(which);
}

void ControlPlane::tell_holder_of_end(int which) {
  Connection& connection = connections_[static_cast<std::size_t>(which)];
  const Rank holder = connection.holder;
  later(&connection.up, connection.rank, holder, [this, which, holder] {
    if (!std::exchange(connections_[static_cast<std::size_t>(which)].is_open_at_holder, false)) {
      return;
    }
    rendezvous::ServingArbiter& its = arbiter(holder);
    its.on_turn(schedule_.now());
    if (its.is_seated(which)) its.on_closed(which, schedule_.now(), {});
    its.on_wake(schedule_.now());
  });
}

void ControlPlane::close_at_holder(int which) {
  const bool was_open =
      std::exchange(connections_[static_cast<std::size_t>(which)].is_open_at_holder, false);
  if (was_open) tell_rank_of_end(which);
}

void ControlPlane::tell_rank_of_end(int which) {
  Connection& connection = connections_[static_cast<std::size_t>(which)];
  const Rank rank = connection.rank;
  later(&connection.down, connection.holder, rank, [this, which, rank] {
    if (!std::exchange(connections_[static_cast<std::size_t>(which)].is_open_at_rank, false)) {
      return;
    }
    client(rank).on_closed(which);
    options_.wake(rank);
  });
}

bool ControlPlane::reset(Rank rank) {
  bool has_struck = false;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const Connection& each = connections_[i];
    const bool is_open = each.is_open_at_rank && each.is_open_at_holder;
    if (each.rank != rank || !is_open || options_.host_of(each.holder) == options_.host_of(rank)) {
      continue;
    }
    tell_holder_of_end(static_cast<int>(i));
    tell_rank_of_end(static_cast<int>(i));
    has_struck = true;
  }
  return has_struck;
}

void ControlPlane::end_process(Rank rank) {
  seat(rank).is_dead = true;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const int which = static_cast<int>(i);
    if (connections_[i].rank == rank) close_at_rank(which);
    if (connections_[i].holder == rank) close_at_holder(which);
  }
}

void ControlPlane::on_left(Rank rank) {
  Seat& its = seat(rank);
  if (its.arbiter != nullptr && its.arbiter->has_taken_over()) return;
  its.listens = false;
  if (its.arbiter == nullptr) return;
  its.arbiter->stop(true, schedule_.now());
}

void ControlPlane::end_after_leaving(Rank rank) {
  if (seat(rank).arbiter != nullptr) seat(rank).arbiter->stop(false, schedule_.now());
  end_process(rank);
}

// When client and arbiter of a rank want to be woken.
void ControlPlane::arm(Rank rank) {
  Seat& its = seat(rank);
  if (its.is_dead) return;
  const TimePoint now = schedule_.now();
  const auto wake_at = [&](TimePoint due, TimePoint Seat::*armed, std::function<void()> what) {
    if (due == kNever || (its.*armed > now && its.*armed <= due)) return;
    its.*armed = std::max(due, now + std::chrono::microseconds(1));
    when_run(its.*armed, rank, std::move(what));
  };
  if (its.client != nullptr) {
    wake_at(its.client->next_due(), &Seat::client_due, [this, rank] {
      client(rank).on_wake();
      options_.wake(rank);
    });
  }
  if (its.arbiter != nullptr) {
    wake_at(its.arbiter->next_due(), &Seat::arbiter_due, [this, rank] {
      arbiter(rank).on_turn(schedule_.now());
      arbiter(rank).on_wake(schedule_.now());
    });
  }
}

}  // namespace unisono::sim
