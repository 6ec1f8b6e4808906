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
/// default-constructed one is finished and ok. Thread rule: any number of threads may test, wait
/// and ask at the same time; only a thread that nobody shares it with may move, detach or destroy
/// it. The destructor of an unfinished request waits (bounded by its deadline), since its buffers
/// are lent; its outcome is then lost, except that the communicator's failure is sticky. detach()
/// is for callers that must not wait there.
class UNISONO_API Request {
 public:
  Request();
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// True when finished. Makes progress on every operation of this rank and waits for none; never
  /// throws. As any call of the library it may run callbacks, see on_completion(), and takes as
  /// long as they do: wait() and wait_for() as well.
  bool test();
  /// Until finished. Throws Error when the operation failed.
  void wait();
  /// False when `limit` passed first; the operation goes on. Throws Error when it failed.
  bool wait_for(std::chrono::milliseconds limit);
  /// Outcome so far, without exception: ok while running. After test() returned true: final.
  Status status() const;
  /// Runs `callback` once with the outcome, when the request is finished: at once if it already is,
  /// else on the thread that finds out. That is the library's own thread, or one that is in a call
  /// of the library for this rank, for whatever request, test(), abort() and traffic() included.
  /// The library holds no lock then: hold none that a callback takes while you call the library.
  /// Callbacks of one request run one at a time, in the order in which they were given, and none
  /// begins while another one runs on its thread. wait(), test(), the destructor and close() do not
  /// wait for callbacks that other threads run. One that throws, or whose destruction does, ends
  /// the process by std::terminate().
  /// A callback may start calls, which is a use of their communicators by that thread: start
  /// collectives on a communicator that only the callback uses, and asynchronous calls only. A
  /// callback that waits, in a blocking call or for another callback, keeps those from running that
  /// its thread has to run next, and other ranks may wait for these: with two callbacks that run in
  /// different orders on two ranks nothing goes on. It is safe only where one callback at a time is
  /// pending in the rank.
  /// It may close, move or destroy a communicator, on a thread that may use that: also one in whose
  /// call its thread waits, which then ends as on any that was closed.
  /// While it runs on the library's own thread, only calls that somebody waits for or tests make
  /// progress: keep it short. An empty function is kInvalidArgument.
  void on_completion(std::function<void(const Status&)> callback);
  /// Lets go of the call without waiting. `owner` keeps its buffers alive until no peer can touch
  /// them any more, and is released as a callback is run. This request is empty afterwards. Only
  /// where the system has no memory left to note the owner it waits for the call.
  void detach(std::shared_ptr<void> owner);
  /// A finished receive: who sent, which tag, how many bytes came.
  Rank source() const;
  Tag tag() const;
  std::size_t bytes() const;

 private:
  friend class Collectives;
  friend void wait_all(std::span<Request* const> requests);
  friend std::size_t wait_any(std::span<Request* const> requests);
  explicit Request(std::shared_ptr<detail::RequestState> state);
  std::shared_ptr<detail::RequestState> state_;
};

/// Waits until all have finished, in whichever order. Then throws the first failure in the order of
/// the span, if there is one.
UNISONO_API void wait_all(std::span<Request> requests);
/// Waits until one has finished, and returns the lowest index of those that have. It passes over
/// empty ones: set the one that was found to Request() to find the next. The outcome of the one
/// found is its status(), or what its wait() throws. Throws kInvalidArgument where all are empty.
UNISONO_API std::size_t wait_any(std::span<Request> requests);

/// The same for requests that lie apart. Null ones are passed over.
UNISONO_API void wait_all(std::span<Request* const> requests);
UNISONO_API std::size_t wait_any(std::span<Request* const> requests);

}  // namespace unisono
