#include "bindings/python/src/errors.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <new>
#include <utility>

#include "unisono/error.h"

namespace unisono::python {
namespace {

// Makes the Python exception: unisono.errors. Never destroyed, because the interpreter may be gone.
nb::object* maker = nullptr;

nb::object made(const Error& error) {
  return (*maker)(static_cast<int>(error.code()), error.rank(), error.what(),
                  error.status().message(), error.host(), error.link(), error.operation());
}

void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (maker == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return;
    }
    const nb::object exception = made(error);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

}  // namespace

void refuse(const char* operation, std::string message) {
  throw Error(Status(ErrorCode::kInvalidArgument, std::move(message)), {.operation = operation});
}

void define_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("set_error_maker", [](nb::object function) {
    delete std::exchange(maker, new nb::object(std::move(function)));
  });
}

}  // namespace unisono::python
