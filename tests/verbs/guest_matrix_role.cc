// A rank of a job that a launcher starts, perhaps over several guests: every collective against the
// oracle. `verbs_guest_test --role=matrix`, or `--role=matrix_while_pulled`, where the last rank
// pulls its host's cable of rxe1 in the middle and puts it back. No tests, because each is one rank
// of many.
#include <cstdio>

#include "tests/collective/collective_case.h"
#include "tests/support/child_process.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/guest_ports.h"

namespace unisono::test {
namespace {

struct Kind {
  DataType type;
  OpKind op;
};
constexpr Kind kKinds[]{{DataType::kFloat32, OpKind::kSum},
                        {DataType::kBfloat16, OpKind::kMax},
                        {DataType::kInt8, OpKind::kProduct},
                        {DataType::kUint64, OpKind::kMin}};
constexpr std::size_t kLargestBytes = std::size_t{4} << 20;  // of all ranks together

// Of what only moves data, each type is one more size: a kind for each collective will do.
bool is_left_out(Collective collective, std::size_t kind) {
  const auto number = static_cast<std::size_t>(collective);
  if (is_full_run()) return false;
  return reduces(collective) ? (number + kind) % 2 != 0 : number % std::size(kKinds) != kind;
}

std::vector<CollectiveCase> cases_of(int ranks) {
  std::vector<CollectiveCase> cases;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (std::size_t k = 0; k < std::size(kKinds); ++k) {
      if (is_left_out(static_cast<Collective>(c), k)) continue;
      const Kind& kind = kKinds[k];
      const std::size_t large =
          kLargestBytes / size_of(kind.type) / static_cast<std::size_t>(ranks);
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}, large / 9, large}) {
        CollectiveCase each{static_cast<Collective>(c), kind.type, kind.op, count};
        const std::size_t number = cases.size();
        each.root = static_cast<Rank>(number % static_cast<std::size_t>(ranks));
        each.in_place = number % 3 == 0 && each.collective != Collective::kAllToAllV;
        each.displaced = number % 2 == 0 && each.collective != Collective::kReduceScatterV;
        cases.push_back(each);
      }
    }
  }
  return cases;
}

void pull_and_put_back(std::size_t done, std::size_t all) {
  if (done == all / 4) set_port("rxe1", false);
  if (done == all / 4 * 3) set_port("rxe1", true);
}

int run_matrix(bool with_pull) {
  try {
    Communicator comm = init();
    const std::vector<CollectiveCase> cases = cases_of(comm.size());
    std::size_t done = 0;
    for (const CollectiveCase& each : cases) {
      if (with_pull && comm.rank() == comm.size() - 1) pull_and_put_back(done, cases.size());
      ++done;
      const std::string wrong = run_case(comm, each);
      if (wrong.empty()) continue;
      std::printf("rank %d: %s: %s\n", comm.rank(), describe(each).c_str(), wrong.c_str());
      return 1;
    }
    std::printf("rank %d of %d: %zu calls are right\n", comm.rank(), comm.size(), cases.size());
    comm.close();
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}

const RoleEntry matrix("matrix", [] { return run_matrix(false); });
const RoleEntry matrix_while_pulled("matrix_while_pulled", [] { return run_matrix(true); });

}  // namespace
}  // namespace unisono::test
