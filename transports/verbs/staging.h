// Registered memory of the transport itself, in slots of one frame: where large frames land that
// are reduced straight from there, and where payloads pass that cannot be registered. Made on first
// use. Owned by VerbsTransport, used by its thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "transports/verbs/registration.h"

namespace unisono::verbs {

/// Page-aligned memory of this library, registered on every rail; Move-only by unique_ptr.
class RailMemory {
 public:
  /// Whole pages. `more_access`: what peers may do beside reading, IBV_ACCESS_REMOTE_WRITE.
  static Result<std::unique_ptr<RailMemory>> make(Rails rails, std::size_t bytes,
                                                  int more_access = 0);
  ~RailMemory();
  RailMemory(const RailMemory&) = delete;
  RailMemory& operator=(const RailMemory&) = delete;

  std::byte* begin() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  const Registration& registration() const { return *registration_; }

 private:
  RailMemory() = default;

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<Registration> registration_;
};

class Staging {
 public:
  /// kOutOfResources names the memlock limit.
  static Result<std::unique_ptr<Staging>> make(Rails rails);

  /// Room for one frame, or null: none is free now; try after poll().
  std::byte* take();
  /// As take(), for what is sent. Half of the room stays for what arrives: ranks whose slots were
  /// all full of what they send would wait for each other.
  std::byte* take_for_sending();
  void give_back(std::byte* slot);
  bool has_free() const { return !free_.empty(); }
  const Registration& registration() const { return memory_->registration(); }

 private:
  explicit Staging(std::unique_ptr<RailMemory> memory);

  std::unique_ptr<RailMemory> memory_;
  std::vector<std::byte*> free_;
};

}  // namespace unisono::verbs
