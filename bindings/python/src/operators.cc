#include "bindings/python/src/operators.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/python/src/interpreter.h"

namespace unisono::python {
namespace {

nb::object view_of(const void* data, std::size_t bytes, int access) {
  auto* const first = const_cast<char*>(static_cast<const char*>(data));
  return nb::steal(PyMemoryView_FromMemory(first, static_cast<Py_ssize_t>(bytes), access));
}

// On whichever thread of the library makes progress; it must not throw.
void call_user(const void* in, void* inout, std::size_t count, DataType type, void* context) {
  auto& user = *static_cast<UserFunction*>(context);
  with_interpreter([&] {
    if (user.failure) return;  // the result is void already
    const std::size_t bytes = count * size_of(type);
    try {
      user.function(view_of(in, bytes, PyBUF_READ), view_of(inout, bytes, PyBUF_WRITE),
                    std::string(name_of(type)));
    } catch (nb::python_error& error) {
      user.failure = nb::borrow(error.value());
    }
  });
}

}  // namespace

Op::Op(std::string name, nb::object function, bool is_commutative)
    : user_(std::make_shared<UserFunction>(std::move(name), std::move(function))) {
  value_ = ops::user_op(user_->name.c_str(), call_user, user_.get(), is_commutative);
}

std::string Op::describe() const {
  if (user_) return "user operator " + user_->name;
  std::string text(name_of(value_.kind));
  if (value_.kind == OpKind::kPremultipliedSum) text += " by " + std::to_string(value_.scalar);
  return text;
}

void Op::raise_failure() const {
  if (!has_failure()) return;
  const nb::object failure = std::exchange(user_->failure, nb::object());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
  throw nb::python_error();
}

void define_operators(nb::module_& module) {
  nb::class_<Op>(module, "Op")
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
