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
                                                         std::size_t bytes, int more_access) {
  std::unique_ptr<Registration> made(new Registration(rails, begin, bytes));
  std::size_t rail = 0;
  int failed = made->register_all(0, more_access, &rail);
  if ((failed == EFAULT || failed == EACCES) && (more_access & IBV_ACCESS_REMOTE_WRITE) == 0) {
    made->deregister();
    made->writable_ = false;
    failed = made->register_all(IBV_ACCESS_LOCAL_WRITE, more_access, &rail);
  }
  if (failed == 0) return made;
  // Of memory EACCES says the same as EFAULT; of devices it would speak of their files.
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
    : rails_(rails), bytes_max_(bytes_max), monitor_(std::move(monitor)) {
  keeps_.usable = monitor_ != nullptr;
  keeps_.reason = keeps_.usable
                      ? "userfaultfd tells when memory is unmapped"
                      : "without userfaultfd nobody tells when memory is unmapped, so it is "
                        "registered for each use";
}

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
  Registration* registration = find(piece);
  if (registration != nullptr) {
    ++counts_.found;
  } else {
    // What is dropped after its use is registered again for the next: no more of it than is used.
    Result<Registration*> added = add(piece, monitor_ != nullptr ? around : piece);
    if (!added) {
      warn_once(added.error());
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
  if (!registration->watched_ || registration->stale_) {
    auto entry = by_begin_.lower_bound(registration->begin_);
    while (entry->second.get() != registration) ++entry;
    erase(entry);
  }
  make_room(0);
}

// Registrations overlap and contain each other, so the nearest need not be the one.
Registration* RegistrationCache::find(Pages piece) {
  for (auto entry = by_begin_.upper_bound(piece.data()); entry != by_begin_.begin();) {
    --entry;
    const auto distance = static_cast<std::size_t>(piece.data() - entry->first);
    if (distance + piece.size() > longest_bytes_) return nullptr;
    if (!entry->second->stale_ && entry->second->covers(piece.data(), piece.size())) {
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
  Registration* registration = made->get();
  // Only now are all its pages present. Nothing can have happened to them in between: their users
  // have lent them.
  registration->watched_ =
      registration->writable_ && monitor_ != nullptr && monitor_->watch(pages).ok();
  by_begin_.emplace(pages.data(), std::move(*made));
  longest_bytes_ = std::max(longest_bytes_, pages.size());
  counts_.bytes += pages.size();
  ++counts_.made;
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
    registration.stale_ = true;
    ++counts_.invalidated;
    entry = registration.holders_ == 0 ? erase(entry) : std::next(entry);
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
