#include "comm/group.h"

#include <sched.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <new>
#include <utility>
#include <vector>

#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/member.h"

namespace unisono {
namespace detail {

void FirstFailure::note(const Status& outcome, Collective of, const CommunicatorState& on) {
  if (!status.ok() || outcome.ok()) return;
  *this = {outcome, of, on.shared_from_this()};
}

void FirstFailure::raise() const {
  if (!status) throw communicator->error(status, collective);
}

namespace {

// Before the first callback that may run on this thread, and drop a communicator.
void keep_communicators(std::span<GroupedCall> calls) {
  for (GroupedCall& each : calls) {
    if (each.kept == nullptr) each.kept = each.communicator->shared_from_this();
  }
}

// Where memory is used up in the midst of `work`, the calls lend nothing any more.
template <typename Work>
void run_or_give_up(std::span<GroupedCall> calls, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    keep_communicators(calls);
    for (GroupedCall& each : calls) {
      const Engine::Lock lock(each.communicator->runtime().engine());
      each.communicator->give_up(each);
    }
    throw;
  }
}

class Group {
 public:
  Group(std::span<GroupedCall> calls, FirstFailure* first) : calls_(calls), first_(*first) {}

  void begin() {
    began_at_once_ = can_begin_at_once();
    if (began_at_once_) {
      begin_at_once();
    } else {
      begin_in_turn();
    }
  }

  void let_run() {
    if (!first_.status.ok()) return;
    for (const GroupedCall& each : calls_) each.communicator->let_run(*each.request);
  }

  void end(Received* received) {
    if (!began_at_once_) await();
    settle_all(received);
  }

 private:
  bool has_one_runtime() const {
    const Runtime* const first = &calls_.front().communicator->runtime();
    return std::all_of(calls_.begin(), calls_.end(), [&](const GroupedCall& each) {
      return &each.communicator->runtime() == first;
    });
  }

  // Blocking calls of one rank, on host memory, that wait for none before them.
  bool can_begin_at_once() const {
    return has_one_runtime() &&
           std::all_of(calls_.begin(), calls_.end(), [](const GroupedCall& each) {
             return !each.on_device && !each.is_asynchronous &&
                    each.communicator->devices().is_in_turn(*each.call, false);
           });
  }

  static bool is_send(const GroupedCall& each) {
    return each.call->collective == Collective::kSend;
  }

  // None of them is refused alone, whatever the order in which they begin.
  bool are_plain_messages() const {
    return std::all_of(calls_.begin(), calls_.end(), [](const GroupedCall& each) {
      return is_point_to_point(each.call->collective) &&
             is_plain_message(*each.call, each.communicator->size());
    });
  }

  // Of messages alone: other calls first have to be moved.
  void let_last_linger() {
    const auto last = std::find_if(calls_.rbegin(), calls_.rend(),
                                   [](const GroupedCall& each) { return !each.has_begun; });
    if (last != calls_.rend()) last->may_linger = true;
  }

  // What is over soon never reaches another thread. Small calls, which are over here, need not be
  // kept.
  void begin_at_once() {
    Engine& engine = engine_of(calls_.front());
    const Engine::Lock lock(engine);
    try {
      begin_and_linger(engine);
    } catch (...) {
      keep_communicators(calls_);
      throw;
    }
    is_flushed_ = !engine.messenger().has_unsent();
    const bool are_over = std::all_of(calls_.begin(), calls_.end(), may_return);
    if (!are_over || !is_flushed_ || engine.has_deferred()) keep_communicators(calls_);
  }

  void begin_and_linger(Engine& engine) {
    boost::container::small_vector<Task*, 8> tasks;
    const auto begin_those = [&](auto is_meant) {
      for (GroupedCall& each : calls_) {
        if (each.has_begun || !is_meant(each)) continue;
        begin_one(each, false);
        if (each.request != nullptr) tasks.push_back(each.request);
      }
    };
    // What a receive waits for may wait for the sends.
    if (are_plain_messages()) {
      begin_those(is_send);
      let_last_linger();
    }
    begin_those([](const GroupedCall&) { return true; });
    engine.start_and_linger({tasks.data(), tasks.size()});
  }

  // Host calls come behind device calls that have not told the peers about themselves. Those wait
  // for this rank's own device, or for members that make the same calls in the same order.
  void begin_in_turn() {
    keep_communicators(calls_);
    bool some_wait = begin_some(calls_.size() > 1);
    for (const GroupedCall& each : calls_) {
      if (each.request != nullptr) {
        note(each, each.communicator->devices().close_gate(*each.request));
      }
    }
    while (some_wait) {
      beat();
      sched_yield();
      some_wait = begin_some(false);
    }
    for (const GroupedCall& each : calls_) {
      if (each.request != nullptr && !each.is_asynchronous) engine_of(each).wake_progress_thread();
    }
  }

  // True where some have to come later.
  bool begin_some(bool in_group) {
    held_up_.clear();
    for (GroupedCall& each : calls_) {
      CommunicatorState& communicator = *each.communicator;
      if (each.has_begun || is_held_up(communicator)) continue;
      if (communicator.usable().ok() &&
          !communicator.devices().is_in_turn(*each.call, each.on_device)) {
        held_up_.push_back(&communicator);
        continue;
      }
      const Engine::Lock lock(engine_of(each));
      begin_one(each, in_group);
      if (each.request != nullptr) engine_of(each).start(*each.request);
    }
    return !held_up_.empty();
  }

  // Under the lock of its engine.
  void begin_one(GroupedCall& each, bool in_group) {
    each.has_begun = true;
    const Result<RequestState*> request = each.communicator->begin(each, in_group);
    if (request) {
      each.request = *request;
      return;
    }
    note(each, request.error());
    for (GroupedCall& later : calls_) {
      if (later.communicator == each.communicator) later.has_begun = true;
    }
  }

  // Until all may return. Waiting for one call alone would starve the others whose ranks this
  // thread also drives.
  void await() const {
    if (has_one_runtime()) return;
    while (!std::all_of(calls_.begin(), calls_.end(), may_return)) {
      beat();
      sched_yield();
    }
  }

  void settle_all(Received* received) {
    for (GroupedCall& each : calls_) {
      if (each.request == nullptr) {
        note_received(*each.call, received);
        continue;
      }
      note(each, each.communicator->settle(each, received));
    }
    // Also of what was over at once: nobody else may beat for this rank for long.
    const bool has_one = began_at_once_ || has_one_runtime();
    if (!is_flushed_) {
      for (const GroupedCall& each : calls_.first(has_one ? 1 : calls_.size())) {
        engine_of(each).flush();
      }
    }
    if (first_.status.ok()) look_at_peers();
  }

  // A receive that was over at once got what it asked for; where it was refused nobody looks.
  static void note_received(const Call& call, Received* received) {
    if (received == nullptr || call.collective != Collective::kReceive) return;
    *received = {call.peer, call.tag, call.count};
  }

  // For calls that have heard of nobody. One look tells all that there is to hear in a job.
  void look_at_peers() {
    for (const GroupedCall& deaf : calls_) {
      if (!deaf.only_sent) continue;
      keep_communicators(calls_);
      note(deaf, deaf.communicator->look_at_peers());
      for (GroupedCall& each : calls_) {
        if (&engine_of(each) == &engine_of(deaf)) each.only_sent = false;
      }
    }
  }

  void beat() const {
    for (const GroupedCall& each : calls_) engine_of(each).beat();
  }

  // Whether the call is where run() would return. What is in a stream goes on by itself.
  static bool may_return(const GroupedCall& each) {
    return each.request == nullptr || each.request->done.load(std::memory_order_acquire) ||
           (each.call->options.stream.has_value() &&
            each.request->enqueued.load(std::memory_order_acquire));
  }

  bool is_held_up(const CommunicatorState& communicator) const {
    return std::find(held_up_.begin(), held_up_.end(), &communicator) != held_up_.end();
  }

  static Engine& engine_of(const GroupedCall& each) {
    return each.communicator->runtime().engine();
  }

  void note(const GroupedCall& each, const Status& outcome) {
    first_.note(outcome, each.call->collective, *each.communicator);
  }

  const std::span<GroupedCall> calls_;
  std::vector<const CommunicatorState*> held_up_;
  bool began_at_once_ = false;
  bool is_flushed_ = false;
  FirstFailure& first_;
};

}  // namespace

FirstFailure begin_together(std::span<GroupedCall> calls) {
  FirstFailure first;
  Group group(calls, &first);
  run_or_give_up(calls, [&] {
    group.begin();
    group.let_run();
  });
  return first;
}

FirstFailure run_together(std::span<GroupedCall> calls, Received* received) {
  FirstFailure first;
  if (calls.empty()) return first;
  Group group(calls, &first);
  run_or_give_up(calls, [&] {
    group.begin();
    group.end(received);
  });
  return first;
}

FirstFailure run_together(CommunicatorState& communicator, std::span<const Call> calls,
                          Received* received) {
  boost::container::small_vector<GroupedCall, 4> grouped;
  for (const Call& call : calls) {
    grouped.push_back({&communicator, &call, communicator.devices().concerns(call)});
  }
  return run_together({grouped.data(), grouped.size()}, received);
}

}  // namespace detail

void group(std::span<const MemberCall> calls) {
  std::vector<detail::GroupedCall> grouped;
  for (const MemberCall& each : calls) {
    detail::CommunicatorState& state = detail::member(
        each.communicator == nullptr ? nullptr : CommunicatorAccess::state(*each.communicator),
        "group");
    grouped.push_back({&state, &each.call, state.devices().concerns(each.call)});
  }
  detail::run_together(grouped, nullptr).raise();
}

}  // namespace unisono
