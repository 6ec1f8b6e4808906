// Errors on their way from the library to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace nb = nanobind;

namespace unisono::python {

/// Throws InvalidArgument, as the library does.
[[noreturn]] void refuse(const char* operation, std::string message);

/// Raises `failure` of Python, if it is one.
void raise_if(const nb::object& failure);

/// An exception of Python as text for other ranks: its class and words, in which what UTF-8 has no
/// bytes for is escaped. The class alone where the words cannot be had. Raises nothing.
std::string text_of(nb::handle exception);

void define_errors(nb::module_& module);

}  // namespace unisono::python
