// Keeps a socket of this process out of its forked children. Without it a data loader forked by a
// rank would hold the rank's control connection open after the rank was killed, so that nobody
// noticed; and the child's destructors would say goodbye in the parent's name. In the child the
// descriptor refers to /dev/null from the fork on.
//
// Thread rule: any thread; fork() may happen on any other.
#pragma once

namespace unisono::rendezvous {

class ForkGuard {
 public:
  /// `fd` stays open until after ~ForkGuard; -1 guards nothing.
  explicit ForkGuard(int fd);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&& other) noexcept;
  ~ForkGuard();

 private:
  int fd_;
};

}  // namespace unisono::rendezvous
