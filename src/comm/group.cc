// Calls on several communicators from one thread.
#include <sched.h>

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator_state.h"
#include "comm/init.h"

namespace unisono {
namespace {

struct Started {
  detail::CommunicatorState* state;
  const Call* call;
  std::shared_ptr<detail::RequestState> request;
  bool refused = false;
};

// Whether the call is where run() would return.
bool is_settled(const Started& started) {
  if (started.refused) return true;
  if (started.request == nullptr) return false;
  return started.request->done.load(std::memory_order_acquire) ||
         (started.call->options.stream.has_value() &&
          started.request->enqueued.load(std::memory_order_acquire));
}

}  // namespace

void group(std::span<const MemberCall> calls) {
  std::vector<Started> all;
  for (const MemberCall& member : calls) {
    detail::CommunicatorState* const state =
        member.communicator == nullptr ? nullptr : CommunicatorAccess::state(*member.communicator);
    if (state == nullptr) {
      throw Error(Status(ErrorCode::kNotMember, "group() was given an empty communicator"),
                  {.operation = "group"});
    }
    all.push_back({state, &member.call, nullptr});
  }
  std::optional<Error> first;
  const auto note = [&first](const Started& started, const Status& status) {
    if (status || first) return;
    first = started.state->error(status, started.call->collective);
  };
  bool gates_closed = false;
  for (bool settled = false; !settled;) {
    settled = true;
    for (Started& started : all) {
      if (started.request == nullptr && !started.refused &&
          started.state->is_in_turn(*started.call)) {
        Result<std::shared_ptr<detail::RequestState>> request =
            started.state->begin(*started.call, !gates_closed);
        started.refused = !request;
        note(started, request.status());
        if (request) started.request = std::move(*request);
      }
    }
    for (const Started& started : all) {
      if (gates_closed || started.request == nullptr) continue;
      note(started, started.state->close_gate(*started.request));
    }
    gates_closed = true;
    for (const Started& started : all) {
      settled = settled && is_settled(started);
      // What is in a stream goes on, and the others may wait for it.
      started.state->runtime().engine().beat();
    }
    if (!settled) sched_yield();
  }
  for (const Started& started : all) {
    if (started.request == nullptr) continue;
    started.state->runtime().engine().wake_progress_thread();
    note(started, started.state->settle(*started.request, *started.call));
  }
  if (first) throw *first;
}

}  // namespace unisono
