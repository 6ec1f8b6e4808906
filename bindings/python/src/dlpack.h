// The DLPack protocol: arrays of libraries that are not NumPy, on the host and on devices.
// The structs are those of its ABI, versions 0 and 1.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace nb = nanobind;

namespace unisono::python {

struct DlpackTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct BorrowedTensor {
  nb::object capsule;  ///< keeps the tensor alive
  const DlpackTensor* tensor = nullptr;
  bool is_read_only = false;
};

/// Asks an object that has __dlpack__ for its tensor, whose data is ready in `stream` (for device
/// memory; none: in the default stream). Throws Error for devices that the library does not know.
BorrowedTensor borrow_tensor(nb::handle object, const char* operation, const char* argument,
                             std::optional<void*> stream);

std::size_t elements_of(const DlpackTensor& tensor);
bool is_contiguous(const DlpackTensor& tensor);

}  // namespace unisono::python
