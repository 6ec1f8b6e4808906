#include "rendezvous/arbiter/arbiter_server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/per_process.h"
#include "base/signals_blocked.h"
#include "rendezvous/sockets/run_or_end.h"

namespace unisono::rendezvous {
namespace {

// A forked child counts on, so that its parent's numbers mean none of its own.
constinit std::atomic<ArbiterNumber> last_number{0};

struct Running {
  const ArbiterNumber number = ++last_number;
  UniqueFd stop;
  std::unique_ptr<ArbiterLoop> loop;  // lives as long as this, for failed()
  std::atomic<bool> finished{false};
  std::thread thread;
  const Store* const store;
  const std::string rendezvous;

  Running(const Store* in, std::string name) : store(in), rendezvous(std::move(name)) {}
  // Pairs with the release store that is the thread's last action.
  bool is_finished() const { return finished.load(std::memory_order_acquire); }
  void end() {
    const std::uint64_t one = 1;
    // An event counter takes one more always; there is nothing to do about a failure.
    static_cast<void>(!::write(stop.get(), &one, sizeof one));
    thread.join();
  }
};

void end_at_exit();

// The loops answer at once: they never block outside epoll_wait.
class Arbiters {
 public:
  Arbiters() {
    // First, so that OpenSSL ends after the threads that use it; asked for nothing it does nothing.
    ::OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
    std::atexit(end_at_exit);
  }

  void add(std::unique_ptr<Running> running) {
    const std::lock_guard lock(mutex_);
    running_.push_back(std::move(running));
  }

  /// Ends those of this process that are `done`.
  template <typename Done>
  void end_if(Done&& done) {
    const std::lock_guard lock(mutex_);
    for (auto at = running_.begin(); at != running_.end();) {
      if (!done(**at)) {
        ++at;
        continue;
      }
      (*at)->end();
      at = running_.erase(at);
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::unique_ptr<Running>> running_;
};

constinit PerProcess<Arbiters> arbiters;

// Joins what is left.
void end_at_exit() {
  if (Arbiters* const made = arbiters.find()) {
    made->end_if([](const Running&) { return true; });
  }
}

Result<ArbiterNumber> start(ArbiterOptions options, GuardedFd rank_zero) {
  Arbiters& all = arbiters.get();
  all.end_if([](const Running& other) { return other.is_finished(); });
  const Rank self = options.self;
  auto running = std::make_unique<Running>(options.store, options.rendezvous);
  running->stop = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!running->stop) {
    return Status(
        ErrorCode::kOutOfResources,
        fmt::format("rank {} cannot start its arbiter (eventfd): {}", self, errno_text(errno)),
        self);
  }
  UNISONO_ASSIGN(running->loop,
                 ArbiterLoop::open(std::move(options), std::move(rank_zero), running->stop.get()));
  Running* const job = running.get();
  try {
    const SignalsBlocked blocked;
    job->thread = std::thread([job] {
      ::pthread_setname_np(::pthread_self(), "unisono-arbiter");
      run_or_end("arbiter", [job] { job->loop->run(); });
      job->finished.store(true, std::memory_order_release);
    });
  } catch (const std::system_error& error) {
    return Status(ErrorCode::kOutOfResources,
                  fmt::format("rank {} cannot start its arbiter's thread: {}", self, error.what()));
  }
  const ArbiterNumber number = job->number;
  all.add(std::move(running));
  return number;
}

}  // namespace

Result<GuardedFd> start_arbiter(ArbiterOptions options) {
  UNISONO_ASSIGN(auto ends, connected_pair());
  UNISONO_TRY(start(std::move(options), std::move(ends.first)));
  return std::move(ends.second);
}

Result<ArbiterNumber> start_standby(ArbiterOptions options) {
  return start(std::move(options), GuardedFd());
}

void end_standby(ArbiterNumber standby, bool left) {
  arbiters.get().end_if([&](const Running& running) {
    if (running.number != standby || running.loop->has_taken_over()) return false;
    if (left) running.loop->note_own_rank_left();
    return true;
  });
}

void prepare_arbiters() { static_cast<void>(arbiters.get()); }

void end_arbiters() { end_at_exit(); }

void end_failed_arbiters(const Store* store, const std::string& rendezvous) {
  arbiters.get().end_if([&](const Running& running) {
    return running.is_finished() ||
           (running.store == store && running.rendezvous == rendezvous && running.loop->failed());
  });
}

void end_arbiters_of(const std::string& rendezvous) {
  arbiters.get().end_if([&](const Running& running) { return running.rendezvous == rendezvous; });
}

}  // namespace unisono::rendezvous
