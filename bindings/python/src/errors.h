// Errors on their way from the library to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace nb = nanobind;

namespace unisono::python {

/// Throws InvalidArgument, as the library does.
[[noreturn]] void refuse(const char* operation, std::string message);

void define_errors(nb::module_& module);

}  // namespace unisono::python
