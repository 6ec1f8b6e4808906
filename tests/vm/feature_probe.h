// What the tests of the feature probe share: two devices, links between them, and what they expect.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tests/vm/link.h"

namespace unisono::vm {

using std::chrono::milliseconds;

inline constexpr std::uint32_t kMegabyte = 1 << 20;

class DeviceFeature : public testing::Test {
 protected:
  void SetUp() override {
    names_ = device_names();
    ASSERT_FALSE(names_.empty()) << "no verbs device";
    first_ = open_device(names_[0]);
    second_ = open_device(names_[std::min<std::size_t>(1, names_.size() - 1)]);
  }

  Link make_link(const LinkOptions& options = {}) { return {first_, second_, options}; }

  std::vector<std::string> names_;
  Device first_;
  Device second_;
};

inline void fill(const End& end) {
  for (std::size_t i = 0; i < kLinkBytes; ++i) *end.at(i) = static_cast<std::byte>(i * 31 + 7);
}

inline testing::AssertionResult same(const End& a, std::size_t a_offset, const End& b,
                                     std::size_t b_offset, std::size_t bytes) {
  if (std::memcmp(a.at(a_offset), b.at(b_offset), bytes) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the bytes differ";
}

inline testing::AssertionResult ends_as(const ibv_wc& completion, ibv_wc_status wanted) {
  if (completion.status == wanted && completion.wr_id != ~std::uint64_t{0}) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << (completion.wr_id == ~std::uint64_t{0} ? "no completion"
                                                   : ibv_wc_status_str(completion.status));
}

inline testing::AssertionResult succeeds(const ibv_wc& completion) {
  return ends_as(completion, IBV_WC_SUCCESS);
}

inline bool readable(int fd, milliseconds limit) {
  pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waited, 1, static_cast<int>(limit.count())) == 1;
}

}  // namespace unisono::vm
