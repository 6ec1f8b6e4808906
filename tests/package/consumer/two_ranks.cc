// Uses the installed library with nothing but its public headers: two ranks, known answers.
#include <unisono/version.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <unisono/unisono.hpp>
#include <vector>

namespace {

using Values = std::vector<std::int64_t>;

void expect(const char* what, const Values& got, const Values& wanted) {
  if (got != wanted) throw std::runtime_error(std::string(what) + ": wrong result");
}

void run_rank(unisono::Communicator& comm) {
  const Values mine = comm.rank() == 0 ? Values{1, 2} : Values{3, 4};

  Values sum(2);
  comm.all_reduce(mine, sum, unisono::ops::sum);
  expect("all_reduce", sum, {4, 6});

  Values all(4);
  comm.all_gather(mine, all);
  expect("all_gather", all, {1, 2, 3, 4});
}

}  // namespace

int main() try {
  unisono::spawn(2, run_rank);
  std::printf("unisono %s: two ranks agree\n", unisono::version());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "two_ranks: %s\n", error.what());
  return 1;
}
