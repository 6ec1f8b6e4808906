// How the ranks of one host come to share a page: rank 0 broadcasts its process id, the descriptor
// and a random number that proves, once mapped, that it is the same page.
#include "tools/perf/rank_sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "base/memfd.h"
#include "base/unique_fd.h"
#include "topology/cpu_quota.h"

namespace unisono::perf {
namespace {

constexpr double kPatienceUs = 1000;

}  // namespace

struct RankSync::Invitation {
  std::int64_t pid = 0, fd = -1, nonce = 0;
};

/// The mapped page.
class RankSync::Page {
 public:
  Page(int fd, std::size_t bytes)
      : bytes_(bytes), memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() {
    if (is_mapped()) munmap(memory_, bytes_);
  }
  bool is_mapped() const { return memory_ != MAP_FAILED; }
  void* memory() { return memory_; }
  SharedHeader& header() { return *static_cast<SharedHeader*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

RankSync::RankSync(Communicator& communicator, std::chrono::milliseconds timeout)
    : communicator_(communicator), timeout_(timeout) {
  const std::size_t bytes = shared_bytes(communicator.size());
  UniqueFd fd;
  Invitation invitation;
  if (communicator.rank() == 0) {
    fd = make_memfd("unisono-perf", MFD_CLOEXEC);
    if (fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
        getrandom(&invitation.nonce, sizeof invitation.nonce, 0) == sizeof invitation.nonce) {
      page_ = std::make_unique<Page>(fd.get(), bytes);
      invitation.pid = getpid();
      invitation.fd = fd.get();
      if (page_->is_mapped()) page_->header().nonce = static_cast<std::uint64_t>(invitation.nonce);
    }
  }
  std::array<std::int64_t, 3> words{invitation.pid, invitation.fd, invitation.nonce};
  communicator.broadcast(words, 0);
  invitation = {words[0], words[1], words[2]};
  std::array<int, 1> joined{open_page(invitation) ? 1 : 0};
  communicator.all_reduce(joined, unisono::ops::min);
  if (joined[0] != 1) {
    page_.reset();
    durations_.resize(kIterationsMax);
    return;
  }
  const double quota = topology::read_cpu_quota();
  const int cpu_limit = quota > 0 ? std::max(1, static_cast<int>(quota)) : kCpusMax;
  lockstep_ = std::make_unique<Lockstep>(page_->memory(), communicator.rank(), communicator.size(),
                                         cpu_limit);
  lockstep_->idle = [this] { check_others(); };
}

RankSync::~RankSync() = default;

bool RankSync::open_page(const Invitation& invitation) {
  if (communicator_.rank() == 0) return page_ != nullptr && page_->is_mapped();
  if (communicator_.host_of(0) != communicator_.host_of(communicator_.rank())) return false;
  const std::string path = fmt::format("/proc/{}/fd/{}", invitation.pid, invitation.fd);
  // Should the number mean another file here, opening it must neither block nor change anything.
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  const std::size_t bytes = shared_bytes(communicator_.size());
  if (!fd || fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode) ||
      facts.st_size != static_cast<off_t>(bytes)) {
    return false;
  }
  page_ = std::make_unique<Page>(fd.get(), bytes);
  return page_->is_mapped() &&
         page_->header().nonce == static_cast<std::uint64_t>(invitation.nonce);
}

void RankSync::give_up() {
  if (lockstep_) lockstep_->header().failed.store(communicator_.rank() + 1);
}

void RankSync::check_others() {
  if (const int failed = lockstep_->header().failed.load(); failed != 0) {
    throw std::runtime_error(fmt::format("rank {} gave up; its message says why", failed - 1));
  }
  const double waited_us = now_us() - waiting_since_us_;
  // One that is dead says nothing here.
  if (waited_us > kPatienceUs) {
    if (const Status why = communicator_.status(); !why) throw Error(why);
  }
  if (waited_us > static_cast<double>(timeout_.count()) * 1000) {
    throw std::runtime_error(fmt::format(
        "not all ranks reached the next measurement within {} s; --timeout sets the limit",
        static_cast<double>(timeout_.count()) / 1000));
  }
}

void RankSync::barrier() {
  if (!lockstep_) return communicator_.barrier();
  waiting_since_us_ = now_us();
  lockstep_->barrier();
}

void RankSync::record(int iteration, double duration_us) {
  if (lockstep_) return lockstep_->record(iteration, duration_us);
  durations_[static_cast<std::size_t>(iteration)] = duration_us;
}

std::vector<double> RankSync::slowest(int iterations) {
  waiting_since_us_ = now_us();
  if (lockstep_) return lockstep_->slowest(iterations);
  std::vector<double> worst(durations_.begin(), durations_.begin() + iterations);
  communicator_.all_reduce(worst, unisono::ops::max);
  return worst;
}

std::uint64_t RankSync::decide(std::uint64_t value) {
  waiting_since_us_ = now_us();
  if (lockstep_) return lockstep_->decide(value);
  std::array<std::uint64_t, 1> words{value};
  communicator_.broadcast(words, 0);
  return words[0];
}

std::uint64_t RankSync::total(std::uint64_t value) {
  waiting_since_us_ = now_us();
  if (lockstep_) return lockstep_->total(value);
  std::array<std::uint64_t, 1> words{value};
  communicator_.all_reduce(words, unisono::ops::sum);
  return words[0];
}

}  // namespace unisono::perf
