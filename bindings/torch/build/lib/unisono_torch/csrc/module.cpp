// What Python sees of the adapter.
#include <torch/csrc/utils/pybind.h>

#include "csrc/backend.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_s,
         std::string name) {
        const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<unisono_torch::UnisonoBackend>(
            store, rank, size, timeout, std::move(name)));
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout_s"),
      py::arg("name") = "unisono", py::call_guard<py::gil_scoped_release>(),
      "Makes the process group of one rank, once all ranks are there.");
  module.def("version", &unisono_version);
}
