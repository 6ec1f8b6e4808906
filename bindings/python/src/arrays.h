// The memory of Python objects, lent to calls without copies.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>

#include "bindings/python/src/array_types.h"

namespace nb = nanobind;

namespace unisono::python {

enum class Use { kRead, kWrite };

/// An array that an object lends, for as long as this lives: NumPy's, what has the buffer protocol
/// or DLPack. It stays where it is, since it holds what the buffer protocol filled in. Needs the
/// GIL.
class Array {
 public:
  Array() = default;
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  /// Takes the memory of `object`; None is no memory. Throws Error, which names the `argument` of
  /// the `operation`, what it is and the remedy.
  void borrow(nb::handle object, const char* operation, const char* argument, Use use,
              std::optional<void*> stream = {});

  bool is_given() const { return is_given_; }
  void* data() const { return data_; }
  std::size_t elements() const { return elements_; }
  std::size_t item_bytes() const { return item_bytes_; }
  std::size_t bytes() const { return elements_ * item_bytes_; }
  const ElementType& type() const { return type_; }

 private:
  struct Facts {
    bool is_contiguous = true;
    bool is_read_only = false;
  };
  bool borrow_buffer(nb::handle object, Facts* facts);
  bool borrow_numpy(nb::handle object, Facts* facts);
  bool borrow_dlpack(nb::handle object, const char* operation, const char* argument,
                     std::optional<void*> stream, Facts* facts);

  Py_buffer view_{};  // has an object while it is held
  nb::object owner_;  // of memory that no view_ holds
  bool is_given_ = false;
  void* data_ = nullptr;
  std::size_t elements_ = 0;
  std::size_t item_bytes_ = 1;
  ElementType type_;
};

/// A CUDA stream: its handle as a number, or an object of torch or CuPy that has one.
std::optional<void*> stream_of(nb::handle stream, const char* operation);

}  // namespace unisono::python
