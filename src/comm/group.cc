#include "comm/group.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator_state.h"
#include "comm/init.h"

namespace unisono {
namespace detail {
namespace {

class Group {
 public:
  explicit Group(std::span<const GroupedCall> calls) {
    for (const GroupedCall& call : calls) calls_.push_back({call.communicator, call.call, {}});
  }

  FirstFailure run(Received* received) {
    begin();
    await();
    for (const Begun& each : calls_) {
      if (each.request == nullptr) continue;
      note(each, each.communicator->settle(*each.request, *each.call));
      if (received != nullptr && !each.call->options.stream) {
        *received = each.communicator->received_by(*each.request, *each.call);
      }
      each.communicator->runtime().engine().flush();
    }
    return first_;
  }

 private:
  struct Begun {
    CommunicatorState* communicator;
    const Call* call;
    std::shared_ptr<RequestState> request;
  };

  // Host calls come behind device calls that have not told the peers about themselves. Those wait
  // for this rank's own device, or for members that make the same calls in the same order.
  void begin() {
    bool some_wait = begin_some(calls_.size() > 1);
    for (const Begun& each : calls_) {
      if (each.request != nullptr)
        note(each, each.communicator->devices().close_gate(*each.request));
    }
    while (some_wait) {
      beat();
      sched_yield();
      some_wait = begin_some(false);
    }
    for (const Begun& each : calls_) {
      if (each.request != nullptr) each.communicator->runtime().engine().wake_progress_thread();
    }
  }

  // True where some have to come later.
  bool begin_some(bool in_group) {
    held_up_.clear();
    for (Begun& each : calls_) {
      if (each.request != nullptr || holds(refused_, each) || holds(held_up_, each)) continue;
      if (each.communicator->usable().ok() &&
          !each.communicator->devices().is_in_turn(*each.call)) {
        held_up_.push_back(each.communicator);
        continue;
      }
      auto request = each.communicator->begin(*each.call, in_group);
      if (request) {
        each.request = std::move(*request);
      } else {
        note(each, request.error());
        refused_.push_back(each.communicator);
      }
    }
    return !held_up_.empty();
  }

  // Waiting for one call alone would starve the others whose ranks this thread also drives.
  void await() const {
    const auto has_same_runtime = [&](const Begun& each) {
      return &each.communicator->runtime() == &calls_.front().communicator->runtime();
    };
    if (std::all_of(calls_.begin(), calls_.end(), has_same_runtime)) return;
    while (!std::all_of(calls_.begin(), calls_.end(), is_settled)) {
      beat();
      sched_yield();
    }
  }

  void beat() const {
    for (const Begun& each : calls_) each.communicator->runtime().engine().beat();
  }

  // Whether the call is where run() would return. What is in a stream goes on by itself.
  static bool is_settled(const Begun& each) {
    return each.request == nullptr || each.request->done.load(std::memory_order_acquire) ||
           (each.call->options.stream.has_value() &&
            each.request->enqueued.load(std::memory_order_acquire));
  }

  static bool holds(const std::vector<const CommunicatorState*>& some, const Begun& each) {
    return std::find(some.begin(), some.end(), each.communicator) != some.end();
  }

  void note(const Begun& each, const Status& outcome) {
    first_.note(outcome, each.call->collective, each.communicator);
  }

  std::vector<Begun> calls_;
  std::vector<const CommunicatorState*> refused_, held_up_;
  FirstFailure first_;
};

}  // namespace

FirstFailure run_together(std::span<const GroupedCall> calls, Received* received) {
  return Group(calls).run(received);
}

}  // namespace detail

void group(std::span<const MemberCall> calls) {
  std::vector<detail::GroupedCall> grouped;
  for (const MemberCall& member : calls) {
    detail::CommunicatorState* const state =
        member.communicator == nullptr ? nullptr : CommunicatorAccess::state(*member.communicator);
    if (state == nullptr || state->runtime().is_forked_copy()) {
      throw Error(Status(ErrorCode::kNotMember,
                         state == nullptr ? "group() was given an empty communicator"
                                          : "group() was given a parent's communicator in a "
                                            "forked child"),
                  {.operation = "group"});
    }
    grouped.push_back({state, &member.call});
  }
  const detail::FirstFailure first = detail::run_together(grouped, nullptr);
  if (!first.status) throw first.communicator->error(first.status, first.collective);
}

}  // namespace unisono
