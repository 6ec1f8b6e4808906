// The time slices of a thread that waits on a core which others keep busy. Linux lets who runs
// finish its slice, of some 3 ms, before a thread that wakes gets the core, unless that one asks
// for shorter slices (6.12; EEVDF, I. Stoica and H. Abdel-Wahab, 1995). It gets no more of the core
// so, only sooner.
#pragma once

#include <cstdint>
#include <optional>

namespace unisono {

/// Slices of the thread that asks, until this ends on the same thread. Where the system has no such
/// wish, refuses it, or the thread's policy is not the ordinary one, everything stays as it was.
class ShortSlices {
 public:
  ShortSlices() = default;
  ShortSlices(const ShortSlices&) = delete;
  ShortSlices& operator=(const ShortSlices&) = delete;
  ~ShortSlices() { give_back(); }

  /// The first time: two system calls. After that nothing.
  void ask();
  /// Before the end; ask() asks again.
  void give_back();

 private:
  bool has_asked_ = false;
  std::optional<std::uint64_t> before_;  // nanoseconds; to be given back
};

}  // namespace unisono
