// A lower limit of this process, as `ulimit` sets it, while it lives.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace unisono::test {

class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t soft) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limits{soft, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &limits), 0);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

}  // namespace unisono::test
