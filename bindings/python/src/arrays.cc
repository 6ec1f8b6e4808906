#include "bindings/python/src/arrays.h"

#include <nanobind/stl/string.h>

#include <string>

#include "bindings/python/src/dlpack.h"
#include "bindings/python/src/errors.h"

namespace unisono::python {
namespace {

std::string class_name(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

[[noreturn]] void refuse_argument(const char* operation, const char* argument, std::string why) {
  refuse(operation, std::string(argument) + " " + std::move(why));
}

}  // namespace

Array::~Array() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

void Array::borrow(nb::handle object, const char* operation, const char* argument, Use use,
                   std::optional<void*> stream) {
  if (object.is_none()) return;
  Facts facts;
  if (!borrow_buffer(object, &facts) && !borrow_numpy(object, &facts) &&
      !borrow_dlpack(object, operation, argument, stream, &facts)) {
    refuse_argument(operation, argument,
                    "is of type " + class_name(object) +
                        ", which is no array: give one of NumPy, or what has the buffer protocol "
                        "or DLPack");
  }
  is_given_ = true;
  if (type_.holds_pointers) {
    refuse_argument(operation, argument,
                    "holds Python objects or pointers (" + type_.name +
                        "), which mean nothing on other ranks: use the calls for objects");
  }
  if (!facts.is_contiguous) {
    refuse_argument(operation, argument,
                    use == Use::kRead
                        ? "is not C-contiguous: give numpy.ascontiguousarray() of it"
                        : "is not C-contiguous: give an array that is, and copy from it");
  }
  if (use == Use::kWrite && facts.is_read_only) {
    refuse_argument(operation, argument,
                    "is read-only (" + class_name(object) +
                        ") and the call writes to it: give a writable array, such as a copy");
  }
}

bool Array::borrow_buffer(nb::handle object, Facts* facts) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_RECORDS_RO) != 0) {
    // NumPy has arrays without a format: dates, and those of ml_dtypes.
    if (PyErr_ExceptionMatches(PyExc_ValueError) == 0 &&
        PyErr_ExceptionMatches(PyExc_BufferError) == 0) {
      throw nb::python_error();
    }
    PyErr_Clear();
    view_.obj = nullptr;
    return false;
  }
  data_ = view_.buf;
  item_bytes_ = static_cast<std::size_t>(view_.itemsize > 0 ? view_.itemsize : 1);
  elements_ = static_cast<std::size_t>(view_.len) / item_bytes_;
  type_ = type_of_format(view_.format, item_bytes_);
  *facts = {PyBuffer_IsContiguous(&view_, 'C') != 0, view_.readonly != 0};
  return true;
}

bool Array::borrow_numpy(nb::handle object, Facts* facts) {
  if (!nb::hasattr(object, "__array_interface__") || !nb::hasattr(object, "dtype")) return false;
  const nb::dict array = nb::cast<nb::dict>(object.attr("__array_interface__"));
  const nb::tuple data = nb::cast<nb::tuple>(array["data"]);
  data_ = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  elements_ = 1;
  for (const nb::handle length : nb::cast<nb::tuple>(array["shape"])) {
    elements_ *= nb::cast<std::size_t>(length);
  }
  const nb::object dtype = object.attr("dtype");
  item_bytes_ = nb::cast<std::size_t>(dtype.attr("itemsize"));
  type_ = type_of_name(nb::cast<std::string>(dtype.attr("name")));
  type_.holds_pointers = nb::cast<bool>(dtype.attr("hasobject"));
  owner_ = nb::borrow(object);
  const bool is_contiguous = !array.contains("strides") || nb::object(array["strides"]).is_none();
  *facts = {is_contiguous || elements_ == 0, nb::cast<bool>(data[1])};
  return true;
}

bool Array::borrow_dlpack(nb::handle object, const char* operation, const char* argument,
                          std::optional<void*> stream, Facts* facts) {
  if (!nb::hasattr(object, "__dlpack__")) return false;
  BorrowedTensor borrowed = borrow_tensor(object, operation, argument, stream);
  const DlpackTensor& tensor = *borrowed.tensor;
  data_ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  elements_ = elements_of(tensor);
  const std::size_t item_bits = std::size_t{tensor.bits} * tensor.lanes;
  if (item_bits % 8 != 0) {
    refuse_argument(operation, argument,
                    "has elements of " + std::to_string(item_bits) +
                        " bits, which share bytes: give a view of its bytes");
  }
  item_bytes_ = item_bits / 8;
  type_ = type_of_dlpack(tensor.code, tensor.bits);
  if (tensor.lanes != 1) type_.type.reset();
  *facts = {is_contiguous(tensor), borrowed.is_read_only};
  owner_ = std::move(borrowed.capsule);
  return true;
}

std::optional<void*> stream_of(nb::handle stream, const char* operation) {
  if (stream.is_none()) return std::nullopt;
  nb::object handle = nb::borrow(stream);
  for (const char* const name : {"cuda_stream", "ptr", "handle"}) {  // torch, CuPy, PyCUDA
    if (PyLong_Check(handle.ptr())) break;
    if (nb::hasattr(stream, name)) handle = stream.attr(name);
  }
  if (!PyLong_Check(handle.ptr())) {
    refuse(operation,
           "stream is of type " + class_name(stream) +
               ": give a CUDA stream's handle as a number, or a stream of torch or CuPy");
  }
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle));
}

}  // namespace unisono::python
