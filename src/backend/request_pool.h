// The requests of a communicator: made when first needed, used again once nobody refers to them.
//
// Thread rule: the engine's lock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/request_state.h"

namespace unisono::detail {

class RequestPool {
 public:
  /// `on_done` runs once for each that was started, by whoever finishes it.
  explicit RequestPool(std::function<void(RequestState&)> on_done) : on_done_(std::move(on_done)) {}

  /// A request that nobody refers to. It still has what the last call left in it. note_running()
  /// comes before the next one is acquired.
  RequestState& acquire();
  /// Resets `request` to this call.
  static void fill(RequestState& request, const Call& call);
  RequestState& prepare(const Call& call);
  /// Copies the count arrays of a call that may outlive the caller's.
  static void copy_counts(RequestState& request);

  /// Calls that the engine has, in the order in which they were made.
  const std::vector<RequestState*>& running() const { return running_; }
  /// `request` has begun, and is `held` for whoever made the call. Allocates nothing.
  void note_running(RequestState& request) {
    request.held = true;
    running_.push_back(&request);
  }
  void note_ended(const RequestState& request) { std::erase(running_, &request); }

 private:
  const std::function<void(RequestState&)> on_done_;
  std::vector<std::shared_ptr<RequestState>> all_;
  std::vector<RequestState*> running_;
};

}  // namespace unisono::detail
