// See staging.h.
#include "transports/verbs/staging.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "transports/frame.h"

namespace unisono::verbs {
namespace {

// Two links that pull four frames each keep the wire busy while frames are reduced.
constexpr std::size_t kSlots = 8;

}  // namespace

Result<std::unique_ptr<RailMemory>> RailMemory::make(Rails rails, std::size_t bytes,
                                                     int more_access) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  std::unique_ptr<RailMemory> made(new RailMemory());
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return call_failed("mmap", "staging memory", errno, bytes);
  // A forked child must not make the parent's pages copies of what devices write to.
  madvise(memory, bytes, MADV_DONTFORK);
  made->memory_ = static_cast<std::byte*>(memory);
  made->bytes_ = bytes;
  UNISONO_ASSIGN(made->registration_, Registration::make(rails, made->memory_, bytes, more_access));
  return made;
}

RailMemory::~RailMemory() {
  registration_.reset();
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

Result<std::unique_ptr<Staging>> Staging::make(Rails rails) {
  UNISONO_ASSIGN(std::unique_ptr<RailMemory> memory,
                 RailMemory::make(rails, kSlots * kFramePayloadMax));
  return std::unique_ptr<Staging>(new Staging(std::move(memory)));
}

Staging::Staging(std::unique_ptr<RailMemory> memory) : memory_(std::move(memory)) {
  free_.reserve(kSlots);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    free_.push_back(memory_->begin() + slot * kFramePayloadMax);
  }
}

std::byte* Staging::take() {
  if (!has_free()) return nullptr;
  std::byte* slot = free_.back();
  free_.pop_back();
  return slot;
}

std::byte* Staging::take_for_sending() { return free_.size() > kSlots / 2 ? take() : nullptr; }

void Staging::give_back(std::byte* slot) { free_.push_back(slot); }

}  // namespace unisono::verbs
