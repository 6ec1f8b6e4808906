#include "bindings/python/src/errors.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <new>
#include <utility>

#include "bindings/python/src/interpreter.h"
#include "unisono/error.h"

namespace unisono::python {
namespace {

// Makes the Python exception: unisono.errors. Never destroyed, because the interpreter may be gone.
nb::object* maker = nullptr;

nb::object made(const Error& error) {
  return (*maker)(static_cast<int>(error.code()), error.rank(), error.what(),
                  error.status().message(), error.host(), error.link(), error.operation(),
                  error.failed_in().number, error.failed_in().had_begun);
}

void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (maker == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return;
    }
    const Counted held = hold_interpreter();
    const nb::object exception = made(error);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

}  // namespace

void refuse(const char* operation, std::string message) {
  throw Error(Status(ErrorCode::kInvalidArgument, std::move(message)), {.operation = operation});
}

void raise_if(const nb::object& failure) {
  if (!failure) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
  throw nb::python_error();
}

std::string text_of(nb::handle exception) {
  const std::string name = Py_TYPE(exception.ptr())->tp_name;
  const nb::object words = nb::steal(PyObject_Str(exception.ptr()));
  nb::object bytes;
  if (words.is_valid()) {
    bytes = nb::steal(PyUnicode_AsEncodedString(words.ptr(), "utf-8", "backslashreplace"));
  }
  if (!bytes.is_valid()) {
    PyErr_Clear();
    return name;
  }
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()));
  return name + ": " + std::string(PyBytes_AS_STRING(bytes.ptr()), size);
}

void define_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("text_of", &text_of);
  module.def("set_error_maker", [](nb::object function) {
    delete std::exchange(maker, new nb::object(std::move(function)));
  });
}

}  // namespace unisono::python
