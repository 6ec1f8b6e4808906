// The handle of an asynchronous call, and the arrays that it keeps.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <optional>

#include "bindings/python/src/calls.h"
#include "unisono/request.h"

namespace nb = nanobind;

namespace unisono::python {

/// A call under way. It keeps its communicator. Dropped unfinished it lets go without waiting: the
/// library gives the arrays back once no peer can touch them.
class PendingCall : public Mortal {
 public:
  PendingCall(nb::object member, Request request, std::unique_ptr<BorrowedCall> call);
  ~PendingCall() override;
  PendingCall(PendingCall&&) = default;

  bool test();
  /// False when `timeout` seconds (None: no end) passed first. Lets signals be handled meanwhile.
  bool wait_until_over(nb::handle timeout);
  /// The same; raises the call's failure.
  bool wait(nb::handle timeout);
  /// The same by a thread that counts as one of `waiting`.
  bool wait(std::atomic<int>& waiting, nb::handle timeout) {
    const Counted counted(waiting);
    return wait(timeout);
  }
  /// Raises the failure of a call that wait_until_over() has found to be over.
  void raise_failure() const;
  /// Whether it is known to be over. Asks nobody.
  bool is_settled() const { return call_ == nullptr; }
  Status status() const;
  /// Calls `function` once the call is over, on whichever thread finds out.
  void on_completion(nb::object function);
  Rank source() const { return request_.source(); }
  Tag tag() const { return request_.tag(); }
  std::size_t count() const { return elements_in(request_.bytes()); }

  Request& request() { return request_; }
  /// The arrays go back to their owner, since the call is over.
  void settle();
  /// What a user operator has raised, whose traceback may lead back here.
  nb::object& failure() { return failure_; }

 private:
  Status check_is_whole() const;
  std::size_t elements_in(std::size_t bytes) const { return bytes / item_bytes_; }

  nb::object member_;  // goes last
  Request request_;
  std::unique_ptr<BorrowedCall> call_;  ///< none once the call is over
  std::size_t item_bytes_;
  std::shared_ptr<bool> is_known_over_;  ///< by callbacks, if there are any; under the GIL
  nb::object failure_;                   ///< of a user operator
  std::exception_ptr error_;             ///< of the library
  Status whole_;                         ///< of a call that is over: check_is_whole()
};

void define_requests(nb::module_& module);

}  // namespace unisono::python
