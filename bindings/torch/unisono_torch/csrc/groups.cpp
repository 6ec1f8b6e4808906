#include "csrc/groups.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "csrc/timeouts.h"

namespace unisono_torch {
namespace {

constexpr int64_t kClosed = -1;

}  // namespace

// A handle is never used twice; it stands in slot handle % kSlots. Whoever uses the communicator
// counts itself first and then looks whether the group is open. So a closed one has no new users,
// and its communicator ends with the last of them.
struct GroupSlot {
  std::atomic<int64_t> handle{kClosed};
  std::atomic<int64_t> users{0};
  CommPointer comm;  // changes under slots_mutex(); null: the slot may be given away
};

namespace {

namespace py = pybind11;

constexpr int64_t kSlots = 4096;

// They outlive static objects, since calls may run while the process ends.
std::array<GroupSlot, kSlots>& slots() {
  static auto& slots = *new std::array<GroupSlot, kSlots>;
  return slots;
}

// One thread at a time gives slots away and takes them back.
std::mutex& slots_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::atomic<int64_t> next_handle{0};

GroupSlot& slot_at(int64_t handle) { return slots()[static_cast<size_t>(handle % kSlots)]; }

GroupSlot& slot_of(int64_t handle, const char* operation) {
  TORCH_CHECK_VALUE(handle >= 0 && handle < next_handle.load(), "unisono: ", operation, ": ",
                    handle, " is no group's handle");
  return slot_at(handle);
}

int64_t keep(CommPointer comm) {
  const std::lock_guard lock(slots_mutex());
  for (int64_t tried = 0; tried < kSlots; ++tried) {
    const int64_t handle = next_handle++;
    GroupSlot& slot = slot_at(handle);
    if (slot.comm != nullptr) continue;
    slot.comm = std::move(comm);
    slot.handle.store(handle);
    return handle;
  }
  TORCH_CHECK(false, "unisono: ", kSlots, " groups are open; close some");
}

// Of a closed group whose last user may have left.
void end_unused(GroupSlot& slot) {
  CommPointer comm;  // ends outside of the lock
  const std::lock_guard lock(slots_mutex());
  if (slot.handle.load() == kClosed && slot.users.load() == 0) comm = std::move(slot.comm);
}

void leave(GroupSlot& slot) {
  if (--slot.users == 0 && slot.handle.load() == kClosed) end_unused(slot);
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

// False where it was closed before; else the caller is a user of it.
bool mark_closed(GroupSlot& slot, int64_t handle) {
  const std::lock_guard lock(slots_mutex());
  if (slot.handle.load() != handle) return false;
  ++slot.users;
  slot.handle.store(kClosed);
  return true;
}

void close(int64_t handle) {
  GroupSlot& slot = slot_of(handle, "close");
  if (!mark_closed(slot, handle)) return;
  unisono_comm_close(slot.comm.get());  // ends the calls of the other users
  leave(slot);
}

void close_all() {
  for (GroupSlot& slot : slots()) {
    if (const int64_t handle = slot.handle.load(); handle != kClosed) close(handle);
  }
}

std::string describe(int64_t handle) {
  const UsedGroup group(handle, "describe");
  std::string text(unisono_comm_describe(group.comm(), nullptr, 0) + 1, '\0');
  text.resize(unisono_comm_describe(group.comm(), text.data(), text.size()));
  return text;
}

int64_t handle_in(const at::Tensor& handle, const char* operation) {
  TORCH_CHECK_TYPE(handle.numel() == 1 && handle.scalar_type() == at::kLong, "unisono: ", operation,
                   ": the group is not one of unisono_torch.ops");
  return *handle.const_data_ptr<int64_t>();
}

}  // namespace

UsedGroup::UsedGroup(int64_t handle, const char* operation) : slot_(slot_of(handle, operation)) {
  ++slot_.users;
  if (slot_.handle.load() == handle) return;
  leave(slot_);
  TORCH_CHECK(false, "unisono: ", operation, ": the group was closed");
}

UsedGroup::UsedGroup(const at::Tensor& handle, const char* operation)
    : UsedGroup(handle_in(handle, operation), operation) {}

UsedGroup::~UsedGroup() { leave(slot_); }

unisono_comm* UsedGroup::comm() const { return slot_.comm.get(); }
int UsedGroup::size() const { return unisono_comm_size(comm()); }

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
  module.def("group_rank",
             [](int64_t handle) { return unisono_comm_rank(UsedGroup(handle, "rank").comm()); });
  module.def("group_size", [](int64_t handle) { return UsedGroup(handle, "size").size(); });
  module.def("group_describe", &describe);
  module.def("group_close", &close, Released());
  module.def("group_close_all", &close_all, Released());
}

}  // namespace unisono_torch
