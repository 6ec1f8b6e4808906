#include "bindings/python/src/operators.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/python/src/interpreter.h"

namespace unisono::python {
namespace {

/// Memory of the library that an operator sees, by the buffer protocol, until it returns.
struct Block {
  void* data;  // null once it has returned
  std::size_t bytes;
  bool is_read_only;
  int views = 0;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Block& block = *nb::inst_ptr<Block>(self);
  if (block.data == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the user operator has returned");
    view->obj = nullptr;
    return -1;
  }
  const int outcome =
      PyBuffer_FillInfo(view, self, block.data, static_cast<Py_ssize_t>(block.bytes),
                        block.is_read_only ? 1 : 0, flags);
  if (outcome == 0) ++block.views;
  return outcome;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<Block>(self)->views; }

PyType_Slot block_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                             {0, nullptr}};

/// A Block for as long as this lives.
class Shown {
 public:
  Shown(const void* data, std::size_t bytes, bool is_read_only)
      : object_(nb::cast(Block{const_cast<void*>(data), bytes, is_read_only})) {}
  ~Shown() { block().data = nullptr; }
  Shown(const Shown&) = delete;

  const nb::object& object() const { return object_; }
  void check_is_free() const {
    if (block().views == 0) return;
    PyErr_SetString(PyExc_BufferError, "it keeps an array that it was given: give it a copy");
    throw nb::python_error();
  }

 private:
  Block& block() const { return *nb::inst_ptr<Block>(object_); }

  nb::object object_;
};

// On whichever thread of the library makes progress; it must not throw.
void call_user(const void* in, void* inout, std::size_t count, DataType type, void* context) {
  with_interpreter([&] {
    static_cast<UserCall*>(context)->combine(in, inout, count * size_of(type), name_of(type));
  });
}

std::string text_of(nb::handle failure) {
  const std::string name = Py_TYPE(failure.ptr())->tp_name;
  try {
    return name + ": " + nb::cast<std::string>(nb::str(failure));
  } catch (nb::python_error&) {
    return name;
  }
}

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
    fail(error);
  }
}

void UserCall::fail(nb::python_error& error) {
  if (failure_) return;  // another thread was first
  failure_ = nb::borrow(error.value());
  text_ = "user operator '" + user_->name + "' raised " + text_of(failure_);
}

Op::Op(std::string name, nb::object function, bool is_commutative)
    : user_(std::make_shared<UserFunction>(UserFunction{std::move(name), std::move(function)})) {
  value_ = ops::user_op(user_->name.c_str(), call_user, nullptr, is_commutative);
}

std::unique_ptr<UserCall> Op::user_call() const {
  return user_ ? std::make_unique<UserCall>(user_) : nullptr;
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
  nb::class_<Block>(module, "Block", nb::type_slots(block_slots));
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
