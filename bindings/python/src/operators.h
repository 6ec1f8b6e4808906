// Reduction operators, those of the user's own among them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/types.h"

namespace nb = nanobind;

namespace unisono::python {

/// A function of Python that combines elements.
struct UserFunction {
  std::string name;
  nb::object function;
};

/// A call's use of a user operator. It stays where it is. Made and destroyed with the GIL.
class UserCall {
 public:
  explicit UserCall(std::shared_ptr<const UserFunction> user) : user_(std::move(user)) {}
  UserCall(const UserCall&) = delete;
  UserCall& operator=(const UserCall&) = delete;

  /// Combines elements, with the GIL. It keeps what the function raises.
  void combine(const void* in, void* inout, std::size_t bytes, std::string_view type) noexcept;
  /// What the function has raised, if anything. The result of the call is void then.
  const nb::object& failure() const { return failure_; }
  /// Of a failure: one sentence for the other ranks.
  const std::string& text() const { return text_; }

 private:
  void fail(nb::handle failure) noexcept;

  std::shared_ptr<const UserFunction> user_;
  nb::object failure_;
  std::string text_;
};

class Op {
 public:
  explicit Op(const ReduceOp& value) : value_(value) {}
  Op(std::string name, nb::object function, bool is_commutative);

  std::string describe() const;
  /// Of a user's own operator: what one call needs; null for the others.
  std::unique_ptr<UserCall> user_call() const;
  /// The operator for the call that has `user`, or null.
  ReduceOp value(UserCall* user) const;
  /// Of a user's own operator; null for the others.
  nb::handle function() const { return user_ ? user_->function.ptr() : nullptr; }
  /// Lets the function go. No call begins with it any more.
  void end() { user_.reset(); }

 private:
  ReduceOp value_;
  std::shared_ptr<const UserFunction> user_;
};

void define_operators(nb::module_& module);

}  // namespace unisono::python
