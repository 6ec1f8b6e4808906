// Object collectives: pickles and their out-of-band buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <exception>

#include "unisono/error.h"
#include "unisono/objects.h"

namespace nb = nanobind;

namespace unisono::python {

/// Options as Python gives them. With wrong ones the call is made all the same, with some that the
/// library refuses: the other ranks hear of it, and this one raises what is wrong.
class GivenOptions {
 public:
  GivenOptions(nb::handle staging_bytes, nb::handle size_limit, nb::handle timeout);

  template <typename Make>
  void make_call(const Make& make) const {
    try {
      make(options_);
    } catch (const Error&) {
      if (failure_) std::rethrow_exception(failure_);
      throw;
    }
  }

 private:
  ObjectOptions options_;
  std::exception_ptr failure_;
};

void define_objects(nb::module_& module);
void define_object_streams(nb::module_& module);

}  // namespace unisono::python
