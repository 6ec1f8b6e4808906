// unisono._core: what the Python of this package is made of. Users import `unisono`.
#include <nanobind/nanobind.h>

#include "communicator.h"
#include "errors.h"
#include "interpreter.h"
#include "memory.h"
#include "objects.h"
#include "operators.h"
#include "request.h"

NB_MODULE(_core, module) {
  using namespace unisono::python;
  // Communicators that are alive when the interpreter ends are closed by then: unisono/__init__.py.
  nanobind::set_leak_warnings(false);
  define_errors(module);
  define_interpreter(module);
  define_memory(module);
  define_operators(module);
  define_requests(module);
  define_communicators(module);
  define_objects(module);
}
