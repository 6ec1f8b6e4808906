// Memory that ranks share, and memory of the caller's own, in the C API.
#include <memory>

#include "bindings/c/handles.h"
#include "bindings/c/sized.h"
#include "unisono/registered_memory.h"
#include "unisono/shared_buffer.h"

struct unisono_memory {
  std::shared_ptr<void> data;
};

struct unisono_registration {
  unisono::RegisteredMemory value;
};

using namespace unisono;
using namespace unisono::c;

unisono_code unisono_allocate(unisono_comm* comm, std::size_t bytes, unisono_memory_kind kind,
                              void** data) {
  return guarded([&] {
    Communicator& value = required(comm, "allocate", kNoCommunicator).value;
    void*& made = required(data, "allocate", "there is no place for the pointer");
    if (kind != UNISONO_HOST && kind != UNISONO_CUDA) {
      refuse("allocate", "the kind is no unisono_memory_kind");
    }
    made = allocate(value, bytes, static_cast<MemoryKind>(kind));
  });
}

unisono_code unisono_release(unisono_comm* comm, void* data) {
  return guarded([&] { release(required(comm, "release", kNoCommunicator).value, data); });
}

unisono_code unisono_memory_allocate(unisono_comm* comm, std::size_t bytes,
                                     unisono_memory** memory) {
  return guarded([&] {
    Communicator& value = required(comm, "allocate", kNoCommunicator).value;
    unisono_memory*& made = required(memory, "allocate", "there is no place for the memory");
    auto handle = std::make_unique<unisono_memory>();
    handle->data = detail::allocate_owned(value, bytes);
    made = handle.release();
  });
}

void* unisono_memory_data(const unisono_memory* memory) {
  return memory == nullptr ? nullptr : memory->data.get();
}

void unisono_memory_free(unisono_memory* memory) { delete memory; }

unisono_code unisono_register(unisono_comm* comm, void* data, std::size_t bytes, std::int32_t fd,
                              std::uint64_t offset, unisono_registration** registration) {
  return guarded([&] {
    Communicator& value = required(comm, "register", kNoCommunicator).value;
    unisono_registration*& made =
        required(registration, "register", "there is no place for the registration");
    made = new unisono_registration{RegisteredMemory(value, data, bytes, {fd, offset})};
  });
}

unisono_peer_access unisono_registration_peer_access(const unisono_registration* registration) {
  return static_cast<unisono_peer_access>(registration->value.peer_access());
}

const char* unisono_registration_reason(const unisono_registration* registration) {
  return registration->value.reason().c_str();
}

int unisono_registration_is_pinned(const unisono_registration* registration) {
  return registration->value.pinned();
}

const char* unisono_registration_pinned_reason(const unisono_registration* registration) {
  return registration->value.pinned_reason().c_str();
}

void unisono_registration_free(unisono_registration* registration) { delete registration; }
