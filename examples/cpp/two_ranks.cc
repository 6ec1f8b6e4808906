// Two ranks, which are threads of this process: [1,2] and [3,4].
//
//   g++ -std=c++20 two_ranks.cc $(pkg-config --cflags --libs unisono) -o two_ranks
//   ./two_ranks
#include <cstdint>
#include <cstdio>
#include <unisono/unisono.hpp>
#include <vector>

int main() {
  unisono::spawn(2, [](unisono::Communicator& comm) {
    std::vector<std::int64_t> mine =
        comm.rank() == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{3, 4};
    std::vector<std::int64_t> sum(2), all(4);
    comm.all_reduce(mine, sum, unisono::ops::sum);  // [4,6] on both ranks
    comm.all_gather(mine, all);                     // [1,2], [3,4] on both ranks
    if (comm.rank() == 0) std::printf("[%ld,%ld]\n", long(sum[0]), long(sum[1]));
  });
}
