// A barrier that names who is missing and, unlike an ordinary one that is overdue, leaves the group
// in working order: the ranks pass tokens to rank 0 and back.
#include "csrc/backend.h"

namespace unisono_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Beyond the tags that send and recv take. Each barrier has one of its own, so that a token that
// came too late is not taken for the next one.
constexpr uint32_t kTags = 0xffff0000;

milliseconds left_until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
}

}  // namespace

// False where the token has not been passed within `limit`.
bool UnisonoBackend::pass_token(unisono_collective collective, int peer, milliseconds limit,
                                const GlobalRanks& in_world) {
  auto* const token = new char(0);
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = collective;
  call.in = token;
  call.out = token;
  call.count = 1;
  call.peer = peer;
  call.tag = kTags | (monitored_barriers_ & 0xffff);
  // A token that is not passed in time stays where it is, and must not end the group later.
  unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
  options.timeout_ms = kLongestTimeout.count();
  call.options = &options;
  unisono_request* request = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const unisono_code code = unisono_start(comm_under_lock(), &call, &request);
    if (code != UNISONO_OK) delete token;
    check(code, "monitored_barrier", in_world);
  }
  int32_t finished = 0;
  const unisono_code code = unisono_request_wait_for(request, limit.count(), &finished);
  const std::exception_ptr failure =
      code == UNISONO_OK ? nullptr : last_error("monitored_barrier", in_world);
  const auto release = [](void* context) { delete static_cast<char*>(context); };
  check(unisono_request_detach(request, release, token), "monitored_barrier");
  if (failure != nullptr) std::rethrow_exception(failure);
  return finished != 0;
}

// Of rank 0.
void UnisonoBackend::await_ranks(milliseconds timeout, bool wait_all_ranks,
                                 const GlobalRanks& in_world) {
  const auto deadline = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const milliseconds left = left_until(deadline);
    TORCH_CHECK(left > milliseconds(0) || !missing.empty(), "Rank ", ranks_text({0}, in_world),
                " timed out in monitoredBarrier after ", timeout.count(), " ms.");
    if (!pass_token(UNISONO_RECEIVE, rank, left, in_world)) missing.push_back(rank);
    if (!missing.empty() && !wait_all_ranks) break;
  }
  TORCH_CHECK(missing.empty(), missing.size() > 1 ? "Ranks " : "Rank ",
              ranks_text(missing, in_world), " failed to pass monitoredBarrier in ",
              timeout.count(), " ms.");
}

void UnisonoBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? timeout_.load() : clamped(options.timeout);
  const std::shared_ptr<const GlobalRanks> in_world = global_ranks();
  ++monitored_barriers_;
  if (getRank() == 0) {
    await_ranks(timeout, wait_all_ranks, *in_world);
    for (int rank = 1; rank < getSize(); ++rank) pass_token(UNISONO_SEND, rank, timeout, *in_world);
    return;
  }
  std::string why = "no answer";
  bool has_passed = false;
  try {
    has_passed = pass_token(UNISONO_SEND, 0, timeout, *in_world) &&
                 pass_token(UNISONO_RECEIVE, 0, timeout, *in_world);
  } catch (const std::exception& error) {
    why = error.what();
  }
  const std::string first = ranks_text({0}, *in_world);
  TORCH_CHECK(has_passed, "Rank ", ranks_text({getRank()}, *in_world),
              " successfully reached monitoredBarrier, but received errors while waiting for "
              "send/recv from rank ",
              first, ". Please check rank ", first, " logs for faulty rank. ", why);
}

}  // namespace unisono_torch
