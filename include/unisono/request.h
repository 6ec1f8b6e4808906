// The handle of an asynchronous call.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "unisono/error.h"
#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

namespace detail {
class RequestState;
}

/// Buffers of the call are lent until the request is finished, success or failure. Movable; a
/// default-constructed one is finished and ok. Thread rule: any thread tests, waits and asks,
/// several at once too; moving, detaching and destroying are for one that has it alone. The
/// destructor of an unfinished request waits (bounded by its deadline), since its buffers are lent;
/// its outcome is then lost, except that the communicator's failure is sticky. detach() is for
/// those that must not wait there.
class UNISONO_API Request {
 public:
  Request();
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// True when finished. Makes progress on every operation of this rank; never waits, never
  /// throws.
  bool test();
  /// Until finished. Throws Error when the operation failed.
  void wait();
  /// False when `limit` passed first; the operation goes on. Throws Error when it failed.
  bool wait_for(std::chrono::milliseconds limit);
  /// Outcome so far, without exception: ok while running. After test() returned true: final.
  Status status() const;
  /// Runs `callback` once, when the request is finished, with its outcome: at once where it is,
  /// else on whichever thread finds out, within the call it makes of the library (any call of the
  /// rank's, test(), abort() and traffic() too; or on the library's own thread), after the
  /// library's locks are released. So hold no lock there that a callback takes. Those of a request
  /// run one at a time in the order in which they were given; none begins while another one runs on
  /// its thread. wait(), test(), the destructor and close() do not wait for them. A callback may
  /// start calls, which counts as a use of their communicators by that thread: collectives want one
  /// that is the callback's own. It must not throw, nor wait for another callback, and while it
  /// runs on the library's own thread only calls that somebody waits for or tests move: keep it
  /// short. An empty one is kInvalidArgument.
  void on_completion(std::function<void(const Status&)> callback);
  /// Lets go of the call without waiting: `owner` keeps its buffers alive and is released as a
  /// callback is run, when no peer can touch them any more. This request is empty afterwards. (It
  /// waits for the call where there is no memory to note the owner.)
  void detach(std::shared_ptr<void> owner);
  /// A finished receive: who sent, which tag, how many bytes came.
  Rank source() const;
  Tag tag() const;
  std::size_t bytes() const;

 private:
  friend class Collectives;
  friend void wait_all(std::span<Request> requests);
  friend std::size_t wait_any(std::span<Request> requests);
  explicit Request(std::shared_ptr<detail::RequestState> state);
  std::shared_ptr<detail::RequestState> state_;
};

/// Until all have finished, in whichever order. Throws the first failure in the order of the span
/// after that.
UNISONO_API void wait_all(std::span<Request> requests);
/// Until one has finished; the lowest index of those that have. Empty ones are passed over, so
/// setting one that was found to Request() finds the next. Its outcome is status(), or what wait()
/// throws. Throws kInvalidArgument where all are empty.
UNISONO_API std::size_t wait_any(std::span<Request> requests);

}  // namespace unisono
