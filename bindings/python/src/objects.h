// Object collectives: pickles and their out-of-band buffers.
#pragma once

#include <nanobind/nanobind.h>

namespace unisono::python {

void define_objects(nanobind::module_& module);

}  // namespace unisono::python
