// The handle of an asynchronous call.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "unisono/error.h"
#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

namespace detail {
class RequestState;
}

/// Buffers of the call are lent until the request is finished, success or failure. Movable; a
/// default-constructed one is finished and ok. Thread rule: one thread at a time per request.
/// The destructor of an unfinished request waits (bounded by its deadline), since its buffers are
/// lent; its outcome is then lost, except that the communicator's failure is sticky.
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
  /// A finished receive: who sent, which tag, how many bytes came.
  Rank source() const;
  Tag tag() const;
  std::size_t bytes() const;

 private:
  friend class Communicator;
  explicit Request(std::shared_ptr<detail::RequestState> state);
  std::shared_ptr<detail::RequestState> state_;
};

}  // namespace unisono
