// A rank of a job that outlives failures, for tests of the launcher. Ranks named in VICTIMS ("1,0")
// die one after the other, each once all are together; the job ends well when all were. With
// NODE_DIES each kills its launcher, and so all of its node. With DIES_WAITING it dies once it
// waits to rejoin, with DIES_ALONE the first process of that rank before it meets anyone. With
// ONLY_MEETS it does no more than that, and with ONLY_MEETS_SOME that many first ranks do so.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "rendezvous/store/launcher_store.h"
#include "tests/fault/survivors.h"

namespace unisono::test {
namespace {

std::vector<Rank> victims_of(const char* text) {
  std::vector<Rank> victims;
  std::istringstream names(text == nullptr ? "" : text);
  for (std::string name; std::getline(names, name, ',');) victims.push_back(std::stoi(name));
  return victims;
}

[[noreturn]] void die(bool with_launcher) {
  kill(with_launcher ? getppid() : getpid(), SIGKILL);
  for (;;) pause();
}

int live() {
  const Rank self = std::atoi(std::getenv("RANK"));
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  std::vector<Rank> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const std::vector<Rank> victims = victims_of(std::getenv("VICTIMS"));
  const bool node_dies = std::getenv("NODE_DIES") != nullptr;
  const int dying = node_dies ? std::atoi(std::getenv("LOCAL_WORLD_SIZE")) : 1;
  auto done = static_cast<std::size_t>(std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT")));
  if (std::getenv("DIES_WAITING") != nullptr) {
    std::thread([self, done] {
      const std::string key = rendezvous::waiting_key(self, static_cast<int>(done));
      while (launcher_store()->get(key, std::chrono::seconds(1)).empty()) continue;
      kill(getpid(), SIGKILL);
    }).detach();
  }
  const char* alone = std::getenv("DIES_ALONE");
  if (alone != nullptr && done == 0 && std::atoi(alone) == self) return 7;
  if (const char* some = std::getenv("ONLY_MEETS_SOME")) {
    const std::string place = "start " + std::to_string(done);
    join(*launcher_store(), place, self, std::atoi(some));
    return 0;
  }
  Communicator comm = init();
  if (std::getenv("ONLY_MEETS") != nullptr) return 0;
  for (;; ++done) {
    try {
      expect_members(comm, self, everyone);
    } catch (const Error&) {
      // The next victim did not wait for all to have found out.
      if (done >= victims.size()) throw;
    }
    if (done >= victims.size()) break;
    if (victims[done] == self) die(node_dies);
    // Those of a node may not be missed at once.
    while (comm.size() > size - dying) {
      call_until_failure(comm);
      comm = comm.shrink();
    }
    comm = comm.grow({.at_least = dying, .wait = std::chrono::seconds(20)});
    require(!comm.empty(), "nobody came");
  }
  comm.barrier();
  std::printf("together after %zu\n", done);
  return 0;
}

}  // namespace
}  // namespace unisono::test

int main() {
  try {
    return unisono::test::live();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
}
