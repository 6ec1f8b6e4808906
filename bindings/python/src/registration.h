// What the library is told of the caller's memory and threads.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace unisono::python {

void define_registrations(nb::module_& module);

}  // namespace unisono::python
