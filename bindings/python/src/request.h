// The handle of an asynchronous call, and the arrays that it keeps.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "bindings/python/src/calls.h"
#include "unisono/request.h"

namespace nb = nanobind;

namespace unisono::python {

/// A call under way. Dropped unfinished it lets go without waiting: the library gives the arrays
/// back once no peer can touch them.
class PendingCall {
 public:
  PendingCall(Request request, std::unique_ptr<BorrowedCall> call);
  ~PendingCall();
  PendingCall(const PendingCall&) = delete;

  bool test();
  /// False when `timeout` seconds (None: no end) passed first. Lets signals be handled meanwhile.
  bool wait(nb::handle timeout);
  /// The same by a thread that counts as one of `waiting`.
  bool wait(std::atomic<int>& waiting, nb::handle timeout) {
    const Counted counted(waiting);
    return wait(timeout);
  }
  Status status() const { return request_.status(); }
  /// Calls `function` once the call is over, on whichever thread finds out.
  void on_completion(nb::object function);
  Rank source() const { return request_.source(); }
  Tag tag() const { return request_.tag(); }
  std::size_t count() const { return elements_in(request_.bytes()); }

  Request& request() { return request_; }
  /// The arrays go back to their owner, once the call is over.
  void give_back();

 private:
  std::size_t elements_in(std::size_t bytes) const { return bytes / item_bytes_; }

  Request request_;
  std::unique_ptr<BorrowedCall> call_;  ///< none once the call is over
  std::size_t item_bytes_;
};

void define_requests(nb::module_& module);

}  // namespace unisono::python
