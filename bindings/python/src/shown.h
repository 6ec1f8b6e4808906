// Memory of the library that functions of Python see while they run.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>

namespace nb = nanobind;

namespace unisono::python {

/// What Python gets: it has the buffer protocol until the function has returned.
struct Block {
  void* data;  // null once it has returned
  std::size_t bytes;
  bool is_read_only;
  int views = 0;
};

/// A Block for as long as this lives. Needs the GIL.
class Shown {
 public:
  Shown(const void* data, std::size_t bytes, bool is_read_only);
  ~Shown() { block().data = nullptr; }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  const nb::object& object() const { return object_; }
  /// Raises BufferError where the function has kept a view.
  void check_is_free() const;

 private:
  Block& block() const { return *nb::inst_ptr<Block>(object_); }

  nb::object object_;
};

void define_shown(nb::module_& module);

}  // namespace unisono::python
