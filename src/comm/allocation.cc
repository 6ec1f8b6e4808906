// Memory of a communicator's job, for its users.
#include <memory>
#include <utility>

#include "backend/call_check.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/member.h"
#include "unisono/shared_buffer.h"

namespace unisono {

std::size_t detail::allocated_bytes(std::size_t count, std::size_t element_bytes) {
  std::size_t bytes = 0;
  const Status status = buffer_bytes(count, 1, element_bytes, &bytes);
  if (!status) throw Error(status, {.operation = "allocate"});
  return bytes;
}

void* allocate(Communicator& communicator, std::size_t bytes, MemoryKind kind) {
  detail::CommunicatorState& state =
      detail::member(CommunicatorAccess::state(communicator), "allocate");
  if (state.closed()) {
    throw Error(Status(ErrorCode::kClosed, "allocate() needs an open communicator"),
                {.operation = "allocate"});
  }
  Result<void*> memory = state.runtime().allocate(detail::allocated_bytes(bytes, 1), kind);
  if (!memory) throw Error(memory.error(), {.operation = "allocate"});
  return *memory;
}

std::shared_ptr<void> detail::allocate_owned(Communicator& communicator, std::size_t bytes) {
  void* const memory = allocate(communicator, bytes);
  const auto release_it =
      [runtime = CommunicatorAccess::state(communicator)->shared_runtime()](void* pointer) mutable {
        if (runtime->is_forked_copy()) return leave_to_parent(std::move(runtime));
        static_cast<void>(runtime->release(pointer));  // its job may be closed
      };
  return {memory, release_it};
}

void release(Communicator& communicator, void* pointer) {
  detail::CommunicatorState* state = CommunicatorAccess::state(communicator);
  if (pointer == nullptr) return;
  if (state == nullptr) detail::refuse_member(true, "release");
  const Status status = state->runtime().release(pointer);
  if (!status) throw Error(status, {.operation = "release"});
}

}  // namespace unisono
