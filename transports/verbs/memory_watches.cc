// Watcher: which memory is watched, for whom, and what the kernel is told about it. See
// memory_watcher.h.
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "transports/verbs/memory_watcher.h"

namespace unisono::verbs {
namespace {

// What unregistering may try where the range has become a patchwork. See unregister().
constexpr int kUnregisterTriesMax = 256;

}  // namespace

void Watcher::detach(Notes* client) {
  {
    const std::lock_guard lock(watches_mutex_);
    for (std::size_t i = watches_.size(); i-- > 0;) {
      if (watches_[i].client == client) unwatch(watches_.begin() + static_cast<long>(i));
    }
  }
  const std::lock_guard lock(notes_mutex_);
  Notes** place = &clients_;
  while (*place != client) place = &(*place)->next;
  *place = client->next;
}

int Watcher::try_register(Range range) {
  uffdio_register request{};
  request.range = {range.begin, range.end - range.begin};
  request.mode = mode_;
  if (ioctl(uffd_.get(), UFFDIO_REGISTER, &request) == 0) return 0;
  if (errno != EINVAL || !may_handle_faults_) return errno;
  // Before Linux 5.19 writes to shared memory could not be protected.
  request.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(uffd_.get(), UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

/// The errno of the kernel's refusal, or 0 and the alignment that the memory asked for.
int Watcher::register_aligned(Range pages, std::uint64_t* step) {
  // Under the mutex: the thread may be about to unregister where memory was moved to.
  const std::lock_guard lock(notes_mutex_);
  *step = page_bytes();
  int failed = try_register(pages);
  if (failed != EINVAL) return failed;
  unsigned char resident = 0;
  if (mincore(reinterpret_cast<void*>(pages.begin), page_bytes(), &resident) != 0) return failed;
  for (const std::uint64_t huge : kHugeSteps) {
    *step = huge;
    failed = try_register(widen(pages, huge));
    if (failed != EINVAL) break;
  }
  return failed;
}

Status Watcher::watch(const Notes* client, Range pages) {
  const std::lock_guard lock(watches_mutex_);
  std::uint64_t step = 0;
  if (const int failed = register_aligned(pages, &step); failed != 0) {
    return Status(ErrorCode::kUnsupported,
                  "memory that userfaultfd cannot watch: " + std::string(std::strerror(failed)));
  }
  const Watch watch{client, pages, widen(pages, step), step};
  const auto place = std::upper_bound(watches_.begin(), watches_.end(), watch,
                                      [](const Watch& left, const Watch& right) {
                                        return left.watched.begin < right.watched.begin;
                                      });
  watches_.insert(place, watch);
  return Status();
}

void Watcher::forget(const Notes* client, Range pages) {
  const std::lock_guard lock(watches_mutex_);
  const auto watch = std::find_if(watches_.begin(), watches_.end(), [&](const Watch& each) {
    return each.client == client && each.asked.begin == pages.begin && each.asked.end == pages.end;
  });
  if (watch != watches_.end()) unwatch(watch);
}

/// Unregisters what no other watch needs.
void Watcher::unwatch(std::vector<Watch>::iterator watch) {
  const Watch gone = *watch;
  watches_.erase(watch);
  int tries = kUnregisterTriesMax;
  std::uint64_t cursor = gone.watched.begin;
  for (const Watch& other : watches_) {
    if (other.watched.begin >= gone.watched.end) break;
    if (other.watched.end <= cursor) continue;
    if (other.watched.begin > cursor) unregister({cursor, other.watched.begin}, gone.step, &tries);
    cursor = other.watched.end;
  }
  if (cursor < gone.watched.end) unregister({cursor, gone.watched.end}, gone.step, &tries);
}

bool Watcher::try_unregister(Range range) {
  uffdio_range request{range.begin, range.end - range.begin};
  return ioctl(uffd_.get(), UFFDIO_UNREGISTER, &request) == 0;
}

// The kernel refuses a range that holds nothing, or some memory that cannot be watched (mapped
// there since). Then its halves are tried. What remains in the end causes events that nobody asked
// for, which do no harm, so `tries` bounds the effort.
void Watcher::unregister(Range range, std::uint64_t step, int* tries) {
  if (*tries == 0) return;
  --*tries;
  if (try_unregister(range) || range.end - range.begin <= step) return;
  const std::uint64_t middle = (range.begin + (range.end - range.begin) / 2) / step * step;
  unregister({range.begin, middle}, step, tries);
  unregister({middle, range.end}, step, tries);
}

}  // namespace unisono::verbs
