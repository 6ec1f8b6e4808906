// Ranks as forked processes of the calling program.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "comm/runtime.h"
#include "comm/spawn_ranks.h"
#include "rendezvous/arbiter/arbiter_server.h"

namespace unisono {
namespace {

Error spawn_error(ErrorCode code, const std::string& message, Rank rank = -1) {
  return Error(Status(code, message, rank), {.operation = "spawn"});
}

// True for the library's word that some other rank has failed: this one only suffers from it.
bool blames_another(int rank, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.rank() >= 0 && error.rank() != rank;
  } catch (...) {
    return false;
  }
}

// Who was first to throw, and what. Written by one rank, read when all have ended.
struct FirstThrow {
  std::atomic<int> rank{-1};
  char text[1000] = {};

  void note(int thrower, const std::exception_ptr& failure) {
    int none = -1;
    if (!rank.compare_exchange_strong(none, thrower)) return;
    std::snprintf(text, sizeof text, "%s", describe_failure(thrower, failure).c_str());
  }
};

// What the ranks leave behind for the process that waits for them.
struct Board {
  enum class Word : std::uint8_t { kNone, kFinished, kThrew };
  FirstThrow by_itself;
  FirstThrow after_another;
  std::atomic<Word> words[kSpawnRanksMax] = {};

  void note(int rank, const std::exception_ptr& failure) {
    words[rank] = Word::kThrew;
    (blames_another(rank, failure) ? after_another : by_itself).note(rank, failure);
  }
};

// A board in memory that forked children share.
class SharedBoard {
 public:
  SharedBoard()
      : memory_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0)) {
    if (memory_ == MAP_FAILED) {
      throw spawn_error(ErrorCode::kOutOfResources,
                        std::string("no memory to share with the ranks: ") + std::strerror(errno));
    }
    board_ = new (memory_) Board;
  }
  ~SharedBoard() { munmap(memory_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& operator*() const { return *board_; }

 private:
  void* memory_;
  Board* board_ = nullptr;
};

// A rank ends with the process that waits for it, whatever it does at that moment. The kernel sends
// the signal when the forking thread ends, and that one returns from spawn() after its last rank.
void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before. 0 is a parent in another pid namespace, which the signal alone
  // covers.
  const pid_t now = getppid();
  if (now != parent && now != 0) _exit(1);
}

[[noreturn]] void run_child(const SpawnJob& job, int rank, Board& board) {
  int status = 0;
  const NoteFailure note = [&board, rank](const std::exception_ptr& failure) {
    board.note(rank, failure);
  };
  try {
    run_rank(job, rank, note);
  } catch (...) {
    note(std::current_exception());
    std::fprintf(stderr, "%s\n", describe_failure(rank, std::current_exception()).c_str());
    status = 1;
  }
  if (status == 0) board.words[rank] = Board::Word::kFinished;
  std::fflush(nullptr);
  rendezvous::end_arbiters();
  _exit(status);
}

// False when the system keeps no record of the child (SIGCHLD is ignored).
bool wait_for_child(pid_t child, int* status) {
  pid_t got;
  do {
    got = waitpid(child, status, 0);
  } while (got < 0 && errno == EINTR);
  return got == child;
}

std::vector<pid_t> fork_all(const SpawnJob& job, Board& board) {
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int rank = 0; rank < job.size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      end_with_parent(parent);
      run_child(job, rank, board);
    }
    if (child < 0) {
      const std::string why = std::strerror(errno);
      int status = 0;
      for (const pid_t started : children) kill(started, SIGKILL);
      for (const pid_t started : children) wait_for_child(started, &status);
      throw spawn_error(ErrorCode::kSystem,
                        "fork() of rank " + std::to_string(rank) + " failed: " + why, rank);
    }
    children.push_back(child);
  }
  return children;
}

// How a child ended that did not say so itself; ok where it did.
Status unsaid_end(Rank rank, Board::Word word, bool known, int status) {
  const std::string who = "rank " + std::to_string(rank);
  if (known && WIFSIGNALED(status)) {
    return Status(ErrorCode::kRankFailed,
                  who + " was killed by signal " + std::to_string(WTERMSIG(status)), rank);
  }
  if (word != Board::Word::kNone || (known && WEXITSTATUS(status) == 0)) return Status();
  const std::string how = known ? "exited with status " + std::to_string(WEXITSTATUS(status))
                                : "ended early; how is unknown while SIGCHLD is ignored";
  return Status(ErrorCode::kRankFailed, who + " " + how, rank);
}

}  // namespace

void run_processes(const SpawnJob& job) {
  if (Runtime::alive() > 0) {
    throw spawn_error(ErrorCode::kInvalidArgument,
                      "spawn() as processes forks, which is not possible once this process is part "
                      "of a job; call it before init()");
  }
  std::fflush(nullptr);
  const SharedBoard shared;
  Board& board = *shared;
  const std::vector<pid_t> children = fork_all(job, board);
  Status killed, exited;  // the first of each kind
  // One by one: other children of the program are not spawn()'s to wait for.
  for (int rank = 0; rank < job.size; ++rank) {
    int status = 0;
    const bool known = wait_for_child(children[static_cast<std::size_t>(rank)], &status);
    const Status end = unsaid_end(rank, board.words[rank], known, status);
    Status& first = known && WIFSIGNALED(status) ? killed : exited;
    if (first.ok()) first = end;
  }
  // What the others throw because of a rank's end is the last to be believed.
  const auto thrown = [](const FirstThrow& first) {
    const Rank rank = first.rank;
    return rank < 0 ? Status() : Status(ErrorCode::kRankFailed, first.text, rank);
  };
  for (const Status& cause :
       {killed, thrown(board.by_itself), exited, thrown(board.after_another)}) {
    if (!cause) throw Error(cause, {.operation = "spawn"});
  }
}

}  // namespace unisono
