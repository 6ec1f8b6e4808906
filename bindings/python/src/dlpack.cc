#include "bindings/python/src/dlpack.h"

#include <cstring>
#include <string>

#include "bindings/python/src/errors.h"

namespace unisono::python {
namespace {

enum Device { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

struct Managed {
  DlpackTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;  // bit 0: read only
  DlpackTensor tensor;
};

int device_of(nb::handle object) { return nb::cast<int>(object.attr("__dlpack_device__")()[0]); }

// 1 is the legacy default stream, as unisono's own without CallOptions::stream.
nb::object stream_number(std::optional<void*> stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream.value_or(nullptr));
  return nb::int_(handle == 0 ? std::uintptr_t{1} : handle);
}

nb::object capsule_of(nb::handle object, const nb::dict& arguments) {
  const nb::object method = object.attr("__dlpack__");
  nb::dict newer;
  newer.update(arguments);
  newer["max_version"] = nb::make_tuple(1, 0);
  try {
    return method(**newer);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**arguments);
}

}  // namespace

BorrowedTensor borrow_tensor(nb::handle object, const char* operation, const char* argument,
                             std::optional<void*> stream) {
  const int device = device_of(object);
  nb::dict arguments;
  if (device == kCuda || device == kCudaManaged) {
    arguments["stream"] = stream_number(stream);
  } else if (device != kCpu && device != kCudaHost) {
    refuse(operation, std::string(argument) + " lies on a device of DLPack's type " +
                          std::to_string(device) +
                          "; unisono moves host and CUDA memory: copy it to the host");
  }
  BorrowedTensor borrowed{capsule_of(object, arguments)};
  PyObject* const capsule = borrowed.capsule.ptr();
  if (PyCapsule_IsValid(capsule, "dltensor_versioned") != 0) {
    const auto* const managed =
        static_cast<const ManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->major != 1) refuse(operation, std::string(argument) + " speaks another DLPack");
    borrowed.is_read_only = (managed->flags & 1u) != 0;
    borrowed.tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor") != 0) {
    borrowed.tensor =
        &static_cast<const Managed*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
  } else {
    refuse(operation, std::string(argument) + ".__dlpack__() gave no DLPack tensor");
  }
  return borrowed;
}

std::size_t elements_of(const DlpackTensor& tensor) {
  std::size_t elements = 1;
  for (int i = 0; i < tensor.dimensions; ++i) {
    elements *= static_cast<std::size_t>(tensor.shape[i]);
  }
  return elements;
}

bool is_contiguous(const DlpackTensor& tensor) {
  if (tensor.strides == nullptr || elements_of(tensor) == 0) return true;
  std::int64_t expected = 1;
  for (int i = tensor.dimensions - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace unisono::python
