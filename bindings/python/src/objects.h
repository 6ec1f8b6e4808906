// Object collectives: pickles and their out-of-band buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "unisono/objects.h"

namespace nb = nanobind;

namespace unisono::python {

ObjectOptions object_options(std::size_t staging_bytes, std::uint64_t size_limit,
                             nb::handle timeout);

void define_objects(nb::module_& module);
void define_object_streams(nb::module_& module);

}  // namespace unisono::python
