// See memory_monitor.h: a client of the process's Watcher, with notes of its own.
#include "transports/verbs/memory_monitor.h"

#include <utility>

#include "transports/verbs/memory_watcher.h"

namespace unisono::verbs {
namespace {

Range range_of(std::span<const std::byte> pages) {
  const auto begin = reinterpret_cast<std::uint64_t>(pages.data());
  return {begin, begin + pages.size()};
}

class UserfaultMonitor final : public MemoryMonitor {
 public:
  explicit UserfaultMonitor(std::shared_ptr<Watcher> watcher) : watcher_(std::move(watcher)) {
    watcher_->attach(&notes_);
  }
  ~UserfaultMonitor() override {
    if (watcher_->is_of_this_process()) watcher_->detach(&notes_);
  }

  Status watch(std::span<const std::byte> pages) override {
    return watcher_->watch(&notes_, range_of(pages));
  }
  void forget(std::span<const std::byte> pages) override {
    watcher_->forget(&notes_, range_of(pages));
  }
  // A thread can have unmapped memory whose event is not taken yet, and another have mapped its
  // address anew: what that other one hands over must not be mistaken for the old.
  bool has_noted() const override { return notes_.changed.load(); }
  // The flag is set before the unmapper may go on: where the kernel was asked just afterwards, the
  // flag tells.
  bool has_changed() const override {
    return has_noted() || watcher_->is_changing() || has_noted();
  }
  std::vector<std::span<const std::byte>> take_changed() override;

 private:
  std::shared_ptr<Watcher> watcher_;
  Notes notes_;
  std::array<Range, kNotesMax> taken_;
};

std::vector<std::span<const std::byte>> UserfaultMonitor::take_changed() {
  watcher_->settle(&notes_);
  std::size_t count = 0;
  {
    const std::lock_guard lock(watcher_->notes_mutex());
    if (notes_.everything) {
      taken_[count++] = {0, SIZE_MAX};
    } else {
      count = notes_.count;
      std::copy_n(notes_.ranges.begin(), count, taken_.begin());
    }
    notes_.count = 0;
    notes_.everything = watcher_->is_lost();
    notes_.changed.store(notes_.everything);
  }
  std::vector<std::span<const std::byte>> changed;
  changed.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    changed.emplace_back(reinterpret_cast<const std::byte*>(taken_[i].begin),
                         taken_[i].end - taken_[i].begin);
  }
  return changed;
}

}  // namespace

Result<std::unique_ptr<MemoryMonitor>> make_memory_monitor(WatchMode mode) {
  UNISONO_ASSIGN(std::shared_ptr<Watcher> watcher, Watcher::shared(mode));
  return std::unique_ptr<MemoryMonitor>(std::make_unique<UserfaultMonitor>(std::move(watcher)));
}

}  // namespace unisono::verbs
