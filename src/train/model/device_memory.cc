// Accounts of device memory and the thread-local scope that names the one to charge.
#include "train/model/device_memory.h"

#include <utility>

#include "train/cuda/cuda_backend.h"
#include "train/host/host_backend.h"

namespace unisono::train {

namespace {

const std::shared_ptr<DeviceMemory::Account> kNobody;

thread_local const std::shared_ptr<DeviceMemory::Account>* current = &kNobody;

std::shared_ptr<Backend> backend_for(Residence residence, int gpu) {
  switch (residence) {
    case Residence::kHost:
      break;
    case Residence::kPageLocked:
      return make_page_locked_backend(gpu);
    case Residence::kCuda:
      return make_cuda_backend(gpu);
  }
  return host_backend();
}

std::string describe_refusal(std::size_t bytes, std::size_t in_use, std::size_t limit,
                             const std::string& where) {
  return (where.empty() ? "" : where + ": ") + "out of device memory: " + std::to_string(bytes) +
         " bytes asked for, " + std::to_string(in_use) + " in use, the limit is " +
         std::to_string(limit) + "; use gradient checkpointing, a smaller batch or a higher limit";
}

}  // namespace

OutOfDeviceMemory::OutOfDeviceMemory(std::size_t bytes, std::size_t in_use, std::size_t limit,
                                     const std::string& where)
    : std::runtime_error(describe_refusal(bytes, in_use, limit, where)),
      bytes_(bytes),
      in_use_(in_use),
      limit_(limit) {}

void DeviceMemory::Account::charge(std::size_t bytes) {
  // The sum is taken first, so that two threads cannot both pass under the limit.
  const std::size_t in_use = now.fetch_add(bytes);
  const std::size_t most = limit;
  if (most != 0 && (in_use > most || bytes > most - in_use)) {
    now -= bytes;
    throw OutOfDeviceMemory(bytes, in_use, most, backend->device_name());
  }
  std::size_t seen = peak;
  while (seen < in_use + bytes && !peak.compare_exchange_weak(seen, in_use + bytes)) {
  }
}

const std::shared_ptr<DeviceMemory::Account>& current_account() { return *current; }

const std::shared_ptr<DeviceMemory::Account>& hosts_account() {
  return backend_of(*current).is_host() ? *current : kNobody;
}

const std::shared_ptr<DeviceMemory::Account>& place_of(const Arena& arena) {
  return backend_of(arena).is_host() ? current_account() : arena.storage().account();
}

AccountScope::AccountScope(const std::shared_ptr<DeviceMemory::Account>& account)
    : previous_(std::exchange(current, &account)) {}
AccountScope::~AccountScope() { current = previous_; }

MemoryCharge::MemoryCharge(std::size_t bytes) {
  if (*current == nullptr) return;
  (*current)->charge(bytes);
  account_ = *current;
  bytes_ = bytes;
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : account_(std::move(other.account_)), bytes_(other.bytes_) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (account_ != nullptr) account_->credit(bytes_);
}

DeviceMemory::DeviceMemory(Residence residence, int gpu)
    : residence_(residence), account_(std::make_shared<Account>(backend_for(residence, gpu))) {}
DeviceMemory::~DeviceMemory() = default;

MemoryUse DeviceMemory::use() const { return {account_->now, account_->peak}; }
void DeviceMemory::reset_peak() { account_->peak = account_->now.load(); }
void try_page_lock(int gpu, std::size_t bytes) {
  const auto memory = make_page_locked_memory(gpu);
  memory->give(memory->take(bytes));
}

void DeviceMemory::wait() { account_->backend->wait(); }
void DeviceMemory::set_limit(std::size_t bytes) { account_->limit = bytes; }

DeviceMemory::Scope::Scope(DeviceMemory& memory)
    : previous_(std::exchange(current, &memory.account_)) {}
DeviceMemory::Scope::~Scope() { current = previous_; }

}  // namespace unisono::train
