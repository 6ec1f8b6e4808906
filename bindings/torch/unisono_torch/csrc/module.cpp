// What Python sees of the adapter.
#include <torch/csrc/utils/pybind.h>

#include "csrc/backend.h"
#include "csrc/completions.h"
#include "csrc/groups.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_s,
         std::string name, bool joins, unisono_torch::GlobalRanks global_ranks) {
        const auto timeout = unisono_torch::milliseconds_of(timeout_s);
        auto comm =
            joins ? unisono_torch::join(*store, rank, size, timeout, global_ranks) : nullptr;
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<unisono_torch::UnisonoBackend>(
            std::move(comm), rank, size, timeout, std::move(name), std::move(global_ranks)));
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout_s"),
      py::arg("name") = "unisono", py::arg("joins") = true,
      py::arg("global_ranks") = unisono_torch::GlobalRanks(),
      py::call_guard<py::gil_scoped_release>(),
      "Makes the process group of one rank, once all ranks are there; not `joins`: at once, for\n"
      "reconfigure() to bring the ranks together.");
  module.def(
      "abort",
      [](const c10::intrusive_ptr<c10d::Backend>& backend) {
        auto* const ours = dynamic_cast<unisono_torch::UnisonoBackend*>(backend.get());
        TORCH_CHECK(ours != nullptr, "unisono: abort: the group is of the backend ",
                    backend->getBackendName());
        ours->abort();
      },
      py::arg("backend"), py::call_guard<py::gil_scoped_release>());
  module.def("version", &unisono_version);
  unisono_torch::add_groups(module);
  // Behind the handlers of an exit that were registered after torch was imported: they may wait for
  // futures.
  const py::cpp_function end(&unisono_torch::end_completions,
                             py::call_guard<py::gil_scoped_release>());
  py::module_::import("weakref").attr("finalize")(module, end);
}
