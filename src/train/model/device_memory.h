// The account behind DeviceMemory, and the calling thread's current one. Tensors charge and credit
// it, and so does what holds memory of another kind (buckets that peers read); any thread may.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "train/model/backend.h"
#include "unisono/train/tensor.h"

namespace unisono::train {

struct DeviceMemory::Account {
  explicit Account(std::shared_ptr<Backend> owner) : backend(std::move(owner)) {}

  const std::shared_ptr<Backend> backend;
  std::atomic<std::size_t> now{0}, peak{0}, limit{0};

  /// Throws OutOfDeviceMemory, and is then as before.
  void charge(std::size_t bytes);
  void credit(std::size_t bytes) { now -= bytes; }
};

/// Of the innermost scope on this thread; null: the host, and nobody is charged.
const std::shared_ptr<DeviceMemory::Account>& current_account();

/// Whom to charge for what must lie on the host: the calling thread's account where that is the
/// host's.
const std::shared_ptr<DeviceMemory::Account>& hosts_account();

/// Null: the host's.
Backend& backend_of(const std::shared_ptr<DeviceMemory::Account>& account);

/// Who is charged for what is computed with an arena's values, and where that lies: on the host
/// whoever computes, on a GPU the arena's own.
const std::shared_ptr<DeviceMemory::Account>& place_of(const Arena& arena);

/// DeviceMemory::Scope by an account, which outlives it and may be null.
class AccountScope {
 public:
  explicit AccountScope(const std::shared_ptr<DeviceMemory::Account>& account);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  const std::shared_ptr<DeviceMemory::Account>* previous_;
};

/// Where the calling thread's tensors lay when it was made: for what may hold none.
class Place {
 public:
  Place() : account_(current_account()) {}
  Backend& backend() const { return backend_of(account_); }

 private:
  std::shared_ptr<DeviceMemory::Account> account_;
};

/// Bytes that no tensor holds, charged to the calling thread's account while this lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(std::size_t bytes);  ///< throws OutOfDeviceMemory
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  std::shared_ptr<DeviceMemory::Account> account_;  // null: nobody
  std::size_t bytes_ = 0;
};

}  // namespace unisono::train
