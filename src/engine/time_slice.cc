#include "engine/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace unisono {
namespace {

// The shortest that Linux gives.
constexpr std::uint64_t kShortSliceNs = 100'000;

// The first version of what sched_setattr(2) takes; C libraries before 2.41 do not declare it.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // ns; of the ordinary policy the slice
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

std::optional<Attributes> own_attributes() {
  Attributes found;
  if (::syscall(SYS_sched_getattr, 0, &found, sizeof found, 0) != 0) return std::nullopt;
  return found;
}

bool set_slice(Attributes attributes, std::uint64_t nanoseconds) {
  attributes.runtime = nanoseconds;
  return ::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

void ShortSlices::ask() {
  if (has_asked_) return;
  has_asked_ = true;
  const std::optional<Attributes> now = own_attributes();
  const bool helps = now && now->policy == SCHED_OTHER && now->runtime > kShortSliceNs;
  if (helps && set_slice(*now, kShortSliceNs)) before_ = now->runtime;
}

void ShortSlices::give_back() {
  if (!before_) return;
  if (const std::optional<Attributes> now = own_attributes()) set_slice(*now, *before_);
  before_.reset();
  has_asked_ = false;
}

}  // namespace unisono
