// A system that refuses threads, for tests.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace unisono::test {

/// While it lives no thread begins: none gets the stack that all ask for by default.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t greedy;
    pthread_getattr_default_np(&greedy);
    pthread_attr_setstacksize(&greedy, std::size_t{1} << 50);
    EXPECT_EQ(pthread_setattr_default_np(&greedy), 0);
    pthread_attr_destroy(&greedy);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace unisono::test
