// See registration.h.
#include "transports/verbs/registration.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/log.h"

namespace unisono::verbs {
namespace {

using Pages = std::span<const std::byte>;

std::uint64_t address_of(const std::byte* byte) { return reinterpret_cast<std::uint64_t>(byte); }

Pages widen(Pages memory) {
  static const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = address_of(memory.data()) / kPage * kPage;
  const std::uint64_t end = (address_of(memory.data()) + memory.size() + kPage - 1) / kPage * kPage;
  return {reinterpret_cast<const std::byte*>(begin), end - begin};
}

bool contains(Pages whole, Pages part) {
  return address_of(part.data()) >= address_of(whole.data()) &&
         address_of(part.data()) + part.size() <= address_of(whole.data()) + whole.size();
}

}  // namespace

Registration::Registration(Rails rails, const std::byte* begin, std::size_t bytes)
    : rails_(rails), begin_(begin), bytes_(bytes) {}

Registration::~Registration() { deregister(); }

Result<std::unique_ptr<Registration>> Registration::make(Rails rails, const std::byte* begin,
                                                         std::size_t bytes, int more_access,
                                                         DirectMemory* device) {
  std::unique_ptr<Registration> made(new Registration(rails, begin, bytes));
  if (device != nullptr) {
    UNISONO_TRY(made->register_device(*device));
    return made;
  }
  std::size_t rail = 0;
  int failed = made->register_all(0, more_access, &rail);
  if ((failed == EFAULT || failed == EACCES) && (more_access & IBV_ACCESS_REMOTE_WRITE) == 0) {
    made->deregister();
    made->writable_ = false;
    failed = made->register_all(IBV_ACCESS_LOCAL_WRITE, more_access, &rail);
  }
  if (failed == 0) return made;
  // EACCES says the same of memory as EFAULT, but its words are those of device files.
  return call_failed("ibv_reg_mr", rails[rail]->name(), failed == EACCES ? EFAULT : failed, bytes);
}

int Registration::register_all(int without_access, int more_access, std::size_t* refused_by) {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const Rail& rail = *rails_[i];
    if (rail.is_lost()) continue;
    const int access = (rail.access() & ~without_access) | more_access;
    errno = 0;
    regions_[i] = rail.api().reg_mr(rail.pd(), const_cast<std::byte*>(begin_), bytes_, access);
    if (regions_[i] == nullptr) {
      *refused_by = i;
      return error_of(-1);
    }
  }
  return 0;
}

// The pages are where they are for as long as the devices know them, whoever frees them meanwhile.
Status Registration::register_device(DirectMemory& device) {
  std::uint64_t offset = 0;
  UNISONO_ASSIGN(const UniqueFd file, device.dma_buf(memory(), &offset));
  allocation_ = device.allocation();
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const Rail& rail = *rails_[i];
    if (rail.is_lost()) continue;
    errno = 0;
    regions_[i] = rail.api().reg_dmabuf_mr(rail.pd(), offset, bytes_, address_of(begin_),
                                           file.get(), rail.access());
    if (regions_[i] != nullptr) continue;
    const Status refused = call_failed("ibv_reg_dmabuf_mr", rail.name(), error_of(-1), bytes_);
    return refused.code() == ErrorCode::kOutOfResources
               ? refused
               : Status(ErrorCode::kUnsupported, refused.message());
  }
  return Status();
}

void Registration::deregister() {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    ibv_mr* region = std::exchange(regions_[i], nullptr);
    if (region == nullptr) continue;
    errno = 0;
    const int failed = error_of(rails_[i]->api().dereg_mr(region));
    if (failed != 0 && !rails_[i]->is_lost()) {
      log::warning(call_failed("ibv_dereg_mr", rails_[i]->name(), failed, bytes_).message());
    }
  }
}

RegistrationCache::RegistrationCache(Rails rails, std::size_t bytes_max,
                                     std::unique_ptr<MemoryMonitor> monitor)
    : rails_(rails), bytes_max_(bytes_max), monitor_(std::move(monitor)) {}

RegistrationCache::~RegistrationCache() = default;

Result<Registration*> RegistrationCache::acquire(Pages piece, Pages around) {
  if (piece.data() == nullptr || piece.empty()) {
    return Status(ErrorCode::kInvalidArgument, "no memory to register: null or of no bytes");
  }
  // The kernel is asked once a message, at its beginning: the rest of it was mapped then, too.
  const bool begins = piece.data() == around.data();
  if (monitor_ != nullptr && (begins ? monitor_->has_changed() : monitor_->has_noted())) {
    drop_changed();
  }
  const std::shared_ptr<DirectMemory> device = find_direct_memory(piece.data(), piece.size());
  Registration* registration = find(piece, device != nullptr ? device->allocation() : 0);
  if (registration != nullptr) {
    ++counts_.found;
  } else {
    // What is dropped after its use is registered again for the next: no more of it than is used.
    Result<Registration*> added = device != nullptr
                                      ? add_device(piece, *device)
                                      : add(piece, monitor_ != nullptr ? around : piece);
    if (!added) {
      if (device == nullptr) warn_once(added.error());
      return added;
    }
    registration = *added;
  }
  if (registration->holders_++ == 0) held_bytes_ += registration->bytes_;
  registration->last_use_ = ++use_;
  return registration;
}

void RegistrationCache::release(Registration* registration) {
  UNISONO_ASSERT(registration->holders_ > 0, "a registration is released more often than acquired");
  if (--registration->holders_ > 0) return;
  held_bytes_ -= registration->bytes_;
  if (!registration->outlives_its_use()) {
    auto entry = by_begin_.lower_bound(registration->begin_);
    while (entry->second.get() != registration) ++entry;
    erase(entry);
  }
  make_room(0);
}

// Registrations overlap and contain each other, so the nearest need not be the one.
Registration* RegistrationCache::find(Pages piece, std::uint64_t allocation) {
  for (auto entry = by_begin_.upper_bound(piece.data()); entry != by_begin_.begin();) {
    --entry;
    const auto distance = static_cast<std::size_t>(piece.data() - entry->first);
    if (distance + piece.size() > longest_bytes_) return nullptr;
    const Registration& known = *entry->second;
    if (!known.stale_ && known.allocation_ == allocation &&
        known.covers(piece.data(), piece.size())) {
      return entry->second.get();
    }
  }
  return nullptr;
}

Result<Registration*> RegistrationCache::add(Pages piece, Pages around) {
  const Pages exact = widen(piece);
  if (contains(around, piece)) {
    const Pages whole = widen(around);
    if (whole.size() > exact.size() && is_worth_trying(whole)) {
      if (Result<Registration*> added = add_pages(whole)) return added;
    }
  }
  return add_pages(exact);
}

Status RegistrationCache::admits_device(std::size_t bytes) const {
  if (!device_refusal_.ok()) return device_refusal_;
  if (bytes <= bytes_max_) return Status();
  return Status(ErrorCode::kOutOfResources, std::to_string(bytes) +
                                                " bytes are more than UNISONO_VERBS_REGISTERED " +
                                                std::to_string(bytes_max_) + " allows");
}

// Exact, not in pages: those may hold other allocations, too.
Result<Registration*> RegistrationCache::add_device(Pages piece, DirectMemory& device) {
  if (!device_refusal_.ok()) return device_refusal_;
  drop_freed(device);
  const Pages whole = admits_device(device.bytes().size()) ? device.bytes() : piece;
  auto made = Registration::make(rails_, whole.data(), whole.size(), 0, &device);
  if (!made) {
    device_refusal_ = made.error();
    const bool is_lacking = device_refusal_.code() == ErrorCode::kUnsupported;
    (is_lacking ? log::info : log::warning)("GPUDirect is off: " + device_refusal_.message());
    return made.error();
  }
  make_room(whole.size());
  return keep(std::move(*made));
}

/// Pieces of a message that is too large come one after the other; not each shall find out anew.
bool RegistrationCache::is_worth_trying(Pages whole) const {
  return whole.size() <= bytes_max_ && held_bytes_ + whole.size() < refused_bytes_;
}

void RegistrationCache::warn_once(const Status& refusal) {
  if (std::exchange(warned_, true)) return;
  log::warning("buffers that cannot be registered are copied, which is slower: " +
               refusal.message());
}

Result<Registration*> RegistrationCache::add_pages(Pages pages) {
  make_room(pages.size());
  auto made = Registration::make(rails_, pages.data(), pages.size());
  if (!made && made.error().code() == ErrorCode::kOutOfResources) {
    bool has_pushed_out = false;
    while (push_out_one()) has_pushed_out = true;
    if (has_pushed_out) made = Registration::make(rails_, pages.data(), pages.size());
    if (!made && made.error().code() == ErrorCode::kOutOfResources) {
      refused_bytes_ = std::min(refused_bytes_, held_bytes_ + pages.size());
    }
  }
  if (!made) return made.error();
  // Only now are all its pages present. Nothing can have happened to them in between: their users
  // have lent them.
  (*made)->watched_ = (*made)->writable_ && monitor_ != nullptr && monitor_->watch(pages).ok();
  return keep(std::move(*made));
}

Registration* RegistrationCache::keep(std::unique_ptr<Registration> made) {
  Registration* const registration = made.get();
  longest_bytes_ = std::max(longest_bytes_, registration->bytes_);
  counts_.bytes += registration->bytes_;
  ++counts_.made;
  by_begin_.emplace(registration->begin_, std::move(made));
  return registration;
}

void RegistrationCache::drop_changed() {
  for (const Pages changed : monitor_->take_changed()) mark_changed(changed);
}

void RegistrationCache::mark_changed(Pages changed) {
  const std::uint64_t begin = address_of(changed.data());
  const std::uint64_t end = begin + changed.size();
  for (auto entry = first_that_may_reach(changed.data());
       entry != by_begin_.end() && address_of(entry->first) < end;) {
    Registration& registration = *entry->second;
    const bool overlaps = address_of(registration.begin_) + registration.bytes_ > begin;
    if (!overlaps || registration.stale_) {
      ++entry;
      continue;
    }
    entry = mark_stale(entry);
  }
}

RegistrationCache::Entries::iterator RegistrationCache::mark_stale(Entries::iterator entry) {
  entry->second->stale_ = true;
  ++counts_.invalidated;
  return entry->second->holders_ == 0 ? erase(entry) : std::next(entry);
}

// Nobody tells when a device's memory is freed, and while it is registered it stays allocated.
void RegistrationCache::drop_freed(const DirectMemory& device) {
  for (auto entry = by_begin_.begin(); entry != by_begin_.end();) {
    const Registration& known = *entry->second;
    const bool goes = known.allocation_ != 0 && !known.stale_ &&
                      !device.is_alive(known.begin_, known.allocation_);
    entry = goes ? mark_stale(entry) : std::next(entry);
  }
}

RegistrationCache::Entries::iterator RegistrationCache::first_that_may_reach(
    const std::byte* begin) {
  const std::uint64_t back = std::min<std::uint64_t>(address_of(begin), longest_bytes_);
  return by_begin_.lower_bound(reinterpret_cast<const std::byte*>(address_of(begin) - back));
}

void RegistrationCache::make_room(std::size_t bytes) {
  const std::size_t entries = bytes > 0 ? 1 : 0;
  while (counts_.bytes + bytes > bytes_max_ || by_begin_.size() + entries > kRegistrationsMax) {
    if (!push_out_one()) return;
  }
}

/// The one that was used least recently.
bool RegistrationCache::push_out_one() {
  auto oldest = by_begin_.end();
  for (auto entry = by_begin_.begin(); entry != by_begin_.end(); ++entry) {
    if (entry->second->holders_ > 0) continue;
    if (oldest == by_begin_.end() || entry->second->last_use_ < oldest->second->last_use_) {
      oldest = entry;
    }
  }
  if (oldest == by_begin_.end()) return false;
  ++counts_.pushed_out;
  erase(oldest);
  return true;
}

RegistrationCache::Entries::iterator RegistrationCache::erase(Entries::iterator entry) {
  const Registration& registration = *entry->second;
  counts_.bytes -= registration.bytes_;
  if (registration.watched_) monitor_->forget(registration.memory());
  return by_begin_.erase(entry);
}

}  // namespace unisono::verbs
