// Functions of Python that the library calls back while one of its callers waits.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/interpreter.h"

namespace nb = nanobind;

namespace unisono::python {

/// The first exception that they raise is kept for the caller; the library gets it as text. Made
/// and destroyed with the GIL.
class Callbacks {
 public:
  /// Runs `function`, which may take long, with the GIL, on a thread that does not have it.
  template <typename F>
  void run(const F& function) {
    const bool is_alive = enter_interpreter([&] {
      try {
        function();
      } catch (nb::python_error& error) {
        keep(error.value());
        throw std::runtime_error(text_of(error.value()));
      }
    });
    if (!is_alive) throw std::runtime_error("the Python interpreter has ended");
  }
  /// Needs the GIL.
  void keep(nb::handle failure) {
    if (!failure_) failure_ = nb::borrow(failure);
  }
  /// Raises what was kept, if anything. Needs the GIL.
  void raise_failure() const { raise_if(failure_); }

 private:
  nb::object failure_;
};

}  // namespace unisono::python
