// The requests of a communicator: made when first needed, used again once nobody refers to them.
//
// Thread rule: the engine's lock.
#pragma once

#include <boost/intrusive/list.hpp>
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
  /// comes before the next one is acquired. However many are under way, few are looked at, and
  /// about twice as many are made.
  RequestState& acquire();
  /// Resets `request` to this call.
  static void fill(RequestState& request, const Call& call);
  RequestState& prepare(const Call& call);
  /// Copies the count arrays of a call that may outlive the caller's.
  static void copy_counts(RequestState& request);

  /// Calls that the engine has, in the order in which they were made.
  using Running = boost::intrusive::list<RequestState, boost::intrusive::base_hook<RunningHook>,
                                         boost::intrusive::constant_time_size<false>>;
  Running& running() { return running_; }
  const Running& running() const { return running_; }
  /// `request` has begun, and is `held` for whoever made the call. Allocates nothing.
  void note_running(RequestState& request) {
    request.held = true;
    running_.push_back(request);
  }
  void note_ended(RequestState& request) {
    if (request.RunningHook::is_linked()) running_.erase(running_.iterator_to(request));
  }

 private:
  RequestState* find_free();

  const std::function<void(RequestState&)> on_done_;
  std::vector<std::shared_ptr<RequestState>> all_;
  std::size_t next_ = 0;   // of all_, which is looked at next
  std::size_t looks_ = 0;  // that may be taken
  Running running_;
};

}  // namespace unisono::detail
