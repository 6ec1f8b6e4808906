// Registering: shared memory says who can map it, transports pin it.
#include "unisono/registered_memory.h"

#include <unistd.h>

#include <new>
#include <utility>

#include "base/limits.h"
#include "base/per_process.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/member.h"
#include "comm/registrations.h"
#include "transports/shm/file_memory.h"

namespace unisono {
namespace {

constinit PerProcess<std::string> no_reason;

Status check_range(const void* data, std::size_t bytes) {
  const bool ends = reinterpret_cast<std::uintptr_t>(data) <= UINTPTR_MAX - bytes;
  if (data != nullptr && bytes > 0 && bytes <= kBufferBytesMax && ends) return Status();
  return Status(ErrorCode::kInvalidArgument,
                range_text({static_cast<const std::byte*>(data), bytes}) +
                    " cannot be registered: memory from 1 to " + std::to_string(kBufferBytesMax) +
                    " bytes, not null, can");
}

// What keeps ranks of other processes from it; empty: nothing.
std::string why_not_mapped(const shm::SharedSegment::Readers& readers, bool is_allocated) {
  if (readers.all_are_threads || (is_allocated && readers.lacks_heap < 0)) return "";
  if (is_allocated) {
    return "rank " + std::to_string(readers.lacks_heap) +
           " of the job had no address space left for this rank's heap; raise its limit (ulimit "
           "-v)";
  }
  if (readers.cannot_map >= 0) {
    return "rank " + std::to_string(readers.cannot_map) + " of the job cannot open /proc/" +
           std::to_string(getpid()) +
           "/fd: another namespace of processes, or this process is not dumpable";
  }
  return readers.may_open ? "" : "this process is not dumpable any more (prctl, or another user)";
}

}  // namespace

// The source is checked even where nobody will map it, so that a mistake is found on every machine.
Status Runtime::share(std::span<const std::byte> memory, const MemorySource& source,
                      RegistrationFacts* facts) {
  shm::FileMemory found{{}, "no descriptor was given"};
  if (source.fd >= 0) {
    UNISONO_ASSIGN(found, shm::find_file_memory(memory, source.fd, source.offset));
  }
  facts->reason = found.refusal;
  if (shared_segment_ == nullptr || shared_segment_->size() == 1) {
    facts->reason = "this rank shares memory with no other one";
    return Status();
  }
  const shm::SharedSegment::Readers readers = shared_segment_->readers();
  const bool by_kernel = config_.access == AccessPath::kSingleCopy && readers.all_copy;
  facts->access = by_kernel ? PeerAccess::kSingleCopy : PeerAccess::kCopied;
  if (config_.access == AccessPath::kWindow) {
    facts->reason = "UNISONO_ACCESS=window";
    return Status();
  }
  const bool is_allocated = shared_segment_->is_allocated(memory);
  if (!readers.all_are_threads && !is_allocated) {
    if (!found.refusal.empty()) return Status();
    UNISONO_ASSIGN(facts->shared_number,
                   shared_segment_->register_memory(memory, source.fd, found.file, source.offset));
  }
  facts->reason = why_not_mapped(readers, is_allocated);
  if (facts->reason.empty()) facts->access = PeerAccess::kMapped;
  return Status();
}

Result<RegistrationFacts> Runtime::register_memory(std::span<const std::byte> memory,
                                                   const MemorySource& source) {
  if (device_ != nullptr && device_->is_device_memory(memory.data())) {
    return Status(ErrorCode::kUnsupported,
                  range_text(memory) + " are device memory, which needs none");
  }
  UNISONO_TRY(registrations_.add(memory));
  RegistrationFacts facts;
  Status outcome;
  try {
    outcome = share(memory, source, &facts);
    if (outcome) {
      const Engine::Lock lock(*engine_);
      facts.pinned = transports_.pin(memory);
      if (facts.pinned.code() != ErrorCode::kUnsupported) outcome = facts.pinned;
    }
  } catch (const std::bad_alloc&) {
    unregister_memory(memory, facts);
    throw;
  }
  if (outcome) return facts;
  unregister_memory(memory, facts);
  return outcome;
}

void Runtime::unregister_memory(std::span<const std::byte> memory, const RegistrationFacts& facts) {
  if (facts.pinned) {
    const Engine::Lock lock(*engine_);
    transports_.unpin(memory);
  }
  if (facts.shared_number >= 0) shared_segment_->unregister_memory(facts.shared_number);
  registrations_.remove(memory);
}

struct RegisteredMemory::State {
  ~State() {
    if (runtime == nullptr) return;  // it was refused
    if (runtime->is_forked_copy()) {
      leave_to_parent(std::move(runtime));
    } else {
      runtime->unregister_memory(memory, facts);
    }
  }

  std::shared_ptr<Runtime> runtime;
  std::span<const std::byte> memory;
  RegistrationFacts facts;
};

RegisteredMemory::RegisteredMemory(Communicator& communicator, void* data, std::size_t bytes,
                                   MemorySource source)
    : state_(std::make_unique<State>()) {
  const auto value_or_throw = [](Result<RegistrationFacts> result) {
    if (!result) throw Error(result.error(), {.operation = "register_memory"});
    return std::move(*result);
  };
  detail::CommunicatorState& state =
      detail::member(CommunicatorAccess::state(communicator), "register_memory");
  if (state.closed()) {
    value_or_throw(Status(ErrorCode::kClosed, "register_memory() needs an open communicator"));
  }
  if (const Status valid = check_range(data, bytes); !valid) value_or_throw(valid);
  state_->memory = {static_cast<const std::byte*>(data), bytes};
  state_->facts = value_or_throw(state.runtime().register_memory(state_->memory, source));
  state_->runtime = state.shared_runtime();
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&&) noexcept = default;
RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&&) noexcept = default;
RegisteredMemory::~RegisteredMemory() = default;

PeerAccess RegisteredMemory::peer_access() const {
  return state_ == nullptr ? PeerAccess::kCopied : state_->facts.access;
}

const std::string& RegisteredMemory::reason() const {
  return state_ == nullptr ? no_reason.get() : state_->facts.reason;
}

bool RegisteredMemory::pinned() const { return state_ != nullptr && state_->facts.pinned.ok(); }

const std::string& RegisteredMemory::pinned_reason() const {
  return state_ == nullptr ? no_reason.get() : state_->facts.pinned.message();
}

RegisteredMemory register_memory(Communicator& communicator, void* data, std::size_t bytes,
                                 MemorySource source) {
  return {communicator, data, bytes, source};
}

}  // namespace unisono
