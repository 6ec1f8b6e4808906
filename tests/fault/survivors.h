// What the ranks do that a failure leaves: call until they hear of it, and show that they go on
// together. Complaints are exceptions, which fail the rank.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/unisono.hpp"

namespace unisono::test {

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline void call_until_failure(Communicator& comm) {
  std::vector<float> data(1000, 1.0f);
  try {
    for (;;) comm.all_reduce(data, ops::sum);
  } catch (const Error&) {
  }
}

// That `comm` consists of these ranks of the first communicator, in this order, and works, in small
// calls and large ones, by plans and by shared memory.
inline void expect_members(Communicator& comm, Rank first_rank, const std::vector<Rank>& expected) {
  require(comm.size() == static_cast<int>(expected.size()),
          std::to_string(comm.size()) + " ranks went on");
  std::vector<Rank> ranks(expected.size());
  comm.all_gather(std::span<const Rank>(&first_rank, 1), ranks);
  require(ranks == expected, "others went on, or in another order");
  for (const std::size_t count : {1ul, 3000ul, 300'000ul}) {
    std::vector<int> data(count, first_rank + 1);
    comm.all_reduce(data, ops::sum);
    const int sum = std::accumulate(expected.begin(), expected.end(), 0) + comm.size();
    require(std::count(data.begin(), data.end(), sum) == static_cast<std::ptrdiff_t>(count),
            "a wrong sum");
    comm.broadcast(data, comm.size() - 1);
  }
  const Rank next = (comm.rank() + 1) % comm.size();
  const Rank previous = (comm.rank() + comm.size() - 1) % comm.size();
  Rank got = -1;
  comm.send_receive(std::span<const Rank>(&first_rank, 1), next, std::span<Rank>(&got, 1),
                    previous);
  require(got == expected[static_cast<std::size_t>(previous)], "a message of another rank");
}

inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

}  // namespace unisono::test
