// unisono._core: what the Python of this package is made of. Users import `unisono`.
#include <nanobind/nanobind.h>

#include "bindings/python/src/communicator.h"
#include "bindings/python/src/errors.h"
#include "bindings/python/src/interpreter.h"
#include "bindings/python/src/memory.h"
#include "bindings/python/src/objects.h"
#include "bindings/python/src/operators.h"
#include "bindings/python/src/registration.h"
#include "bindings/python/src/request.h"
#include "bindings/python/src/shown.h"

NB_MODULE(_core, module) {
  using namespace unisono::python;
  // Communicators that are alive when the interpreter ends are closed by then: unisono/__init__.py.
  nanobind::set_leak_warnings(false);
  define_errors(module);
  define_interpreter(module);
  define_memory(module);
  define_shown(module);
  define_operators(module);
  define_requests(module);
  define_communicators(module);
  define_joining(module);
  define_registrations(module);
  define_objects(module);
  define_object_streams(module);
}
