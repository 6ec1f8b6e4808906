// Memory of the library that Python reads and writes by the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

namespace nb = nanobind;

namespace unisono::python {

/// Writable bytes, kept by whoever has a view of them.
class Memory {
 public:
  Memory(std::shared_ptr<void> data, std::size_t bytes) : data_(std::move(data)), bytes_(bytes) {}
  void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> data_;
  std::size_t bytes_;
};

/// Memory of its own, aligned as NumPy's arrays are at least.
Memory allocate_memory(std::size_t bytes);

void define_memory(nb::module_& module);

}  // namespace unisono::python
