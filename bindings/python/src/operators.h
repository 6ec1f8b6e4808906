// Reduction operators, those of the user's own among them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "unisono/types.h"

namespace nb = nanobind;

namespace unisono::python {

/// A function of Python that combines elements. What it raises is kept until the call is over.
struct UserFunction {
  std::string name;
  nb::object function;
  nb::object failure;
};

class Op {
 public:
  explicit Op(const ReduceOp& value) : value_(value) {}
  Op(std::string name, nb::object function, bool is_commutative);

  const ReduceOp& value() const { return value_; }
  std::string describe() const;
  bool has_failure() const { return user_ && user_->failure; }
  /// Raises what the user's function has raised. Needs the GIL.
  void raise_failure() const;

 private:
  ReduceOp value_;
  std::shared_ptr<UserFunction> user_;
};

void define_operators(nb::module_& module);

}  // namespace unisono::python
