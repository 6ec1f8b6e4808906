#include "bindings/python/src/shown.h"

namespace unisono::python {
namespace {

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Block& block = *nb::inst_ptr<Block>(self);
  if (block.data == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the function that was given it has returned");
    view->obj = nullptr;
    return -1;
  }
  const int outcome =
      PyBuffer_FillInfo(view, self, block.data, static_cast<Py_ssize_t>(block.bytes),
                        block.is_read_only ? 1 : 0, flags);
  if (outcome == 0) ++block.views;
  return outcome;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<Block>(self)->views; }

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {0, nullptr}};

// Of memory without bytes, which may have none.
char nothing = 0;

}  // namespace

Shown::Shown(const void* data, std::size_t bytes, bool is_read_only)
    : object_(
          nb::cast(Block{bytes > 0 ? const_cast<void*>(data) : &nothing, bytes, is_read_only})) {}

void Shown::check_is_free() const {
  if (block().views == 0) return;
  PyErr_SetString(PyExc_BufferError, "it keeps an array that it was given: give it a copy");
  throw nb::python_error();
}

void define_shown(nb::module_& module) {
  nb::class_<Block>(module, "Block", nb::type_slots(slots));
}

}  // namespace unisono::python
