#include "bindings/python/src/memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace unisono::python {
namespace {

constexpr std::size_t kAlignment = 64;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory& memory = *nb::inst_ptr<Memory>(self);
  static char nothing = 0;
  void* const data = memory.bytes() > 0 ? memory.data() : &nothing;
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(memory.bytes()), 0, flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

Memory allocate_memory(std::size_t bytes) {
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1);
  void* const data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  return {std::shared_ptr<void>(data, std::free), bytes};
}

void define_memory(nb::module_& module) {
  nb::class_<Memory>(module, "Memory", nb::type_slots(slots)).def("__len__", &Memory::bytes);
}

}  // namespace unisono::python
