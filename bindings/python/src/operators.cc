#include "bindings/python/src/operators.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <stdexcept>
#include <utility>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/interpreter.h"
#include "bindings/python/src/shown.h"

namespace unisono::python {
namespace {

// On whichever thread of the library makes progress; it must not throw.
void call_user(const void* in, void* inout, std::size_t count, DataType type, void* context) {
  with_interpreter([&] {
    static_cast<UserCall*>(context)->combine(in, inout, count * size_of(type), name_of(type));
  });
}

// The collector counts an operator's share of its function, and may end the operator. Calls that
// run it have shares of their own, and an operator that nobody can end: they keep it.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<Op>(self)->function().ptr());
  return 0;
}

int clear(PyObject* self) {
  nb::inst_ptr<Op>(self)->end();
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {0, nullptr}};

}  // namespace

void UserCall::combine(const void* in, void* inout, std::size_t bytes,
                       std::string_view type) noexcept {
  if (failure_) return;  // the result is void already
  const InUserFunction inside;
  try {
    const Shown low(in, bytes, true);
    const Shown high(inout, bytes, false);
    user_->function(low.object(), high.object(), nb::str(type.data(), type.size()));
    low.check_is_free();
    high.check_is_free();
  } catch (nb::python_error& error) {
    fail(error.value());
  } catch (const std::exception& error) {  // of this module, which lacks memory
    PyErr_SetString(PyExc_RuntimeError, error.what());
    fail(nb::python_error().value());
  }
}

void UserCall::fail(nb::handle failure) noexcept {
  if (failure_) return;  // another thread was first
  failure_ = nb::borrow(failure);
  try {
    text_ = "user operator '" + user_->name + "' raised " + text_of(failure_);
  } catch (const std::exception&) {  // no memory: the others hear that there was an abort
  }
}

Op::Op(std::string name, nb::object function, bool is_commutative)
    : user_(std::make_shared<UserFunction>(UserFunction{std::move(name), std::move(function)})) {
  value_ = ops::user_op(user_->name.c_str(), call_user, nullptr, is_commutative);
}

std::unique_ptr<UserCall> Op::user_call() const {
  if (value_.kind != OpKind::kUser) return nullptr;
  if (!user_) throw std::runtime_error("a garbage collection has ended the operator");
  return std::make_unique<UserCall>(user_);
}

ReduceOp Op::value(UserCall* user) const {
  ReduceOp value = value_;
  value.context = user;
  return value;
}

std::string Op::describe() const {
  if (user_) return "user operator " + user_->name;
  std::string text(name_of(value_.kind));
  if (value_.kind == OpKind::kPremultipliedSum) text += " by " + std::to_string(value_.scalar);
  return text;
}

void define_operators(nb::module_& module) {
  nb::class_<Op>(module, "Op", nb::type_slots(slots))
      .def("__repr__", [](const Op& op) { return "<unisono.Op: " + op.describe() + ">"; })
      .def_prop_ro("name", &Op::describe);
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    const auto value = static_cast<OpKind>(kind);
    if (value == OpKind::kUser || value == OpKind::kPremultipliedSum) continue;
    module.attr(("OP_" + std::string(name_of(value))).c_str()) = Op(ReduceOp{value});
  }
  module.def("premultiplied_sum", [](double factor) { return Op(ops::premultiplied_sum(factor)); });
  module.def("user_op", [](std::string name, nb::object function, bool commutative) {
    return Op(std::move(name), std::move(function), commutative);
  });
}

}  // namespace unisono::python
