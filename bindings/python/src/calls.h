// Calls as Python gives them, and as the library takes them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bindings/python/src/arrays.h"
#include "bindings/python/src/communicator.h"
#include "bindings/python/src/interpreter.h"
#include "bindings/python/src/operators.h"
#include "unisono/communicator.h"

namespace nb = nanobind;

namespace unisono::python {

/// The arguments of every call, whichever it is; None where it has none of a kind.
struct Given {
  Collective collective;
  nb::handle in, out, op;
  Rank root, peer;
  Tag tag;
  nb::handle in_counts, in_displacements, out_counts, out_displacements;
  nb::handle timeout, algorithm, order, stream;
};

/// A call with what it borrows. It stays where it is. Made and destroyed with the GIL. Where its
/// user operator has raised, its end aborts the communicator: the other ranks have a void result.
class BorrowedCall : public Mortal {
 public:
  /// Throws Error for what cannot be a call of this communicator.
  BorrowedCall(Member& member, const Given& given);
  ~BorrowedCall() override;
  BorrowedCall(const BorrowedCall&) = delete;
  BorrowedCall& operator=(const BorrowedCall&) = delete;

  const Call& call() const { return call_; }
  /// Bytes of one element of the user's arrays.
  std::size_t item_bytes() const { return item_bytes_; }
  /// Of a message of `got.count` bytes: that it does not end inside an element. The library sees to
  /// that where it knows the type of the elements.
  Status check_is_whole(const Received& got) const;
  /// What a user operator has raised, or nothing.
  nb::object failure() const { return user_ ? user_->failure() : nb::object(); }

 private:
  void borrow(const Given& given, Rank rank);
  void set_op(Member& member, nb::handle op);
  void abort_communicator() const noexcept;
  void set_type();
  void set_options(const Given& given);
  void set_sizes(const Given& given, const Communicator& communicator);
  void set_counts(nb::handle given, const char* what, std::vector<std::size_t>* list,
                  std::span<const std::size_t>* view);

  const char* operation_;
  Array in_, out_;
  nb::object op_;
  std::unique_ptr<UserCall> user_;
  nb::object member_;  ///< a weak reference; of calls that have a user_
  std::size_t item_bytes_ = 1;
  std::size_t scale_ = 1;  ///< elements of the call's type in one of the array's
  std::vector<std::size_t> in_counts_, in_displacements_, out_counts_, out_displacements_;
  std::string algorithm_;
  Call call_;
};

/// Seconds, or None for 0: the default.
std::chrono::milliseconds milliseconds_of(nb::handle seconds, const char* operation);

/// By its name; an empty one is kAny.
Order order_of(const std::string& text, const char* operation);

}  // namespace unisono::python
