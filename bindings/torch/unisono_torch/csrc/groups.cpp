#include "csrc/groups.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "csrc/timeouts.h"

namespace unisono_torch {
namespace {

namespace py = pybind11;

constexpr int64_t kSlots = 4096;
constexpr int64_t kFree = -1;

// A handle is never used twice; it stands in slot handle % kSlots.
struct Slot {
  std::atomic<int64_t> handle{kFree};
  Group group{};
};

// They outlive static objects, since calls may run while the process ends.
std::array<Slot, kSlots>& slots() {
  static auto& slots = *new std::array<Slot, kSlots>;
  return slots;
}

// One thread at a time gives slots away and takes them back.
std::mutex& slots_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::atomic<int64_t> next_handle{0};

Slot& slot_at(int64_t handle) { return slots()[static_cast<size_t>(handle % kSlots)]; }

Slot& slot_of(int64_t handle, const char* operation) {
  TORCH_CHECK_VALUE(handle >= 0 && handle < next_handle.load(), "unisono: ", operation, ": ",
                    handle, " is no group's handle");
  return slot_at(handle);
}

// A closed communicator stays until its slot is needed: another thread may be in a call on it.
int64_t keep(CommPointer comm) {
  CommPointer closed;  // ends outside of the lock
  const std::lock_guard lock(slots_mutex());
  for (int64_t tried = 0; tried < kSlots; ++tried) {
    const int64_t handle = next_handle++;
    Slot& slot = slot_at(handle);
    if (slot.handle.load() != kFree) continue;
    const int size = unisono_comm_size(comm.get());
    closed = std::exchange(slot.group, {std::move(comm), size}).comm;
    slot.handle.store(handle, std::memory_order_release);
    return handle;
  }
  TORCH_CHECK(false, "unisono: ", kSlots, " groups are open; close some");
}

int64_t init(double timeout_s) {
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = milliseconds_of(timeout_s).count();
  unisono_comm* comm = nullptr;
  check(unisono_init(&options, &comm), "init");
  return keep({comm, unisono_comm_destroy});
}

std::string make_id() {
  unisono_unique_id id;
  check(unisono_unique_id_make(&id), "unique_id");
  return {id.bytes, sizeof id.bytes};
}

int64_t join_by_bytes(const std::string& bytes, int rank, int size, double timeout_s) {
  unisono_unique_id id;
  TORCH_CHECK_VALUE(bytes.size() == sizeof id.bytes, "unisono: an id has ", sizeof id.bytes,
                    " bytes, not ", bytes.size());
  std::memcpy(id.bytes, bytes.data(), bytes.size());
  return keep(join_by_id(id, rank, size, milliseconds_of(timeout_s), "join_by_id"));
}

// The communicator of a slot that is free from here on; null where it was closed before.
CommPointer taken_back(int64_t handle) {
  Slot& slot = slot_of(handle, "close");
  const std::lock_guard lock(slots_mutex());
  if (slot.handle.load() != handle) return nullptr;
  slot.handle.store(kFree);
  return slot.group.comm;
}

void close(int64_t handle) {
  const CommPointer comm = taken_back(handle);
  if (comm != nullptr) unisono_comm_close(comm.get());
}

void close_all() {
  for (Slot& slot : slots()) {
    if (const int64_t handle = slot.handle.load(); handle != kFree) close(handle);
  }
}

const Group& open_group(int64_t handle, const char* operation) {
  const Slot& slot = slot_of(handle, operation);
  TORCH_CHECK(slot.handle.load(std::memory_order_acquire) == handle, "unisono: ", operation,
              ": the group was closed");
  return slot.group;
}

std::string describe(int64_t handle) {
  unisono_comm* const comm = open_group(handle, "describe").comm.get();
  std::string text(unisono_comm_describe(comm, nullptr, 0) + 1, '\0');
  text.resize(unisono_comm_describe(comm, text.data(), text.size()));
  return text;
}

}  // namespace

const Group& group_of(const at::Tensor& handle, const char* operation) {
  TORCH_CHECK_TYPE(handle.numel() == 1 && handle.scalar_type() == at::kLong, "unisono: ", operation,
                   ": the group is not one of unisono_torch.ops");
  return open_group(*handle.const_data_ptr<int64_t>(), operation);
}

void add_groups(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("group_init", &init, Released());
  module.def(
      "group_join",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_s) {
        return keep(join(*store, rank, size, milliseconds_of(timeout_s)));
      },
      Released());
  module.def("group_make_id", [] { return py::bytes(make_id()); });
  module.def("group_join_by_id", &join_by_bytes, Released());
  module.def("group_rank", [](int64_t handle) {
    return unisono_comm_rank(open_group(handle, "rank").comm.get());
  });
  module.def("group_size", [](int64_t handle) { return open_group(handle, "size").size; });
  module.def("group_describe", &describe);
  module.def("group_close", &close, Released());
  module.def("group_close_all", &close_all, Released());
}

}  // namespace unisono_torch
