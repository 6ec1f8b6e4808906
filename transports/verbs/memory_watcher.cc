// Watcher: one for all monitors of a process, its thread, and what it does about events. See
// memory_watcher.h.
#include "transports/verbs/memory_watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/signals_blocked.h"

namespace unisono::verbs {
namespace {

// Reads of events in one go, so that nobody waits long for the mutex.
constexpr int kReadsMax = 16;
// How long a client waits for another thread that is in the middle of unmapping.
constexpr int kYieldsMax = 2000;

/// One per process and mode: a page can be watched by one userfaultfd only. Never destroyed, so
/// that threads that outlive main() find it.
struct Shared {
  Shared() {
    pthread_atfork(nullptr, nullptr, close_in_child);
    for (std::atomic<int>& descriptor : descriptors) descriptor.store(-1);
  }
  static Shared& get() {
    static Shared* const shared = new Shared;
    return *shared;
  }
  // A child that kept the descriptor open would keep its parent's memory watched, after the thread
  // that takes events has ended: whoever unmaps some would wait for ever.
  static void close_in_child() {
    for (std::atomic<int>& descriptor : get().descriptors) {
      const int fd = descriptor.exchange(-1);
      if (fd >= 0) close(fd);
    }
  }

  std::mutex mutex;
  std::array<std::weak_ptr<Watcher>, 2> watchers;
  std::array<std::atomic<int>, 2> descriptors;
};

Status not_to_be_had(int error_number) {
  const std::string words = std::strerror(error_number);
  if (error_number == ENOSYS) {
    return Status(ErrorCode::kUnsupported,
                  "userfaultfd: " + words +
                      "; needs a kernel with CONFIG_USERFAULTFD, and a container whose seccomp "
                      "profile lets it pass");
  }
  return Status(ErrorCode::kUnsupported,
                "userfaultfd: " + words +
                    "; allow it by a seccomp profile that lets userfaultfd(2) pass and, for other "
                    "users than root, by sysctl vm.unprivileged_userfaultfd=1 or access to "
                    "/dev/userfaultfd");
}

}  // namespace

Result<std::shared_ptr<Watcher>> Watcher::shared(WatchMode mode) {
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  const std::size_t place = mode == WatchMode::kBest ? 0 : 1;
  // A forked child has its parent's watcher, but neither its thread nor its memory's events.
  std::shared_ptr<Watcher> watcher = shared.watchers[place].lock();
  if (watcher != nullptr && watcher->is_of_this_process()) return watcher;
  watcher = std::make_shared<Watcher>();
  UNISONO_TRY(watcher->open(mode));
  watcher->published_ = &shared.descriptors[place];
  watcher->published_->store(watcher->uffd_.get());
  shared.watchers[place] = watcher;
  return watcher;
}

Status Watcher::open_descriptor(bool* user_mode_only) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  *user_mode_only = false;
  uffd_.reset(static_cast<int>(syscall(SYS_userfaultfd, kFlags)));
  if (uffd_) return Status();
  const int error_number = errno;
  const UniqueFd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  if (device) uffd_.reset(ioctl(device.get(), USERFAULTFD_IOC_NEW, kFlags));
  if (uffd_) return Status();
  *user_mode_only = true;
  uffd_.reset(static_cast<int>(syscall(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY)));
  return uffd_ ? Status() : not_to_be_had(error_number);
}

Status Watcher::open(WatchMode mode) {
  bool user_mode_only = false;
  UNISONO_TRY(open_descriptor(&user_mode_only));
  // Without the event of fork() a child's memory is not watched, and it waits for nobody.
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  if (ioctl(uffd_.get(), UFFDIO_API, &api) != 0) {
    return Status(ErrorCode::kUnsupported, "userfaultfd reports no unmapping here (" +
                                               std::string(std::strerror(errno)) +
                                               "); needs Linux 4.11 or later");
  }
  // Protecting writes is asked for because it costs nothing as long as no page is protected, and
  // none ever is. Asked for missing pages, the kernel stops every thread that touches one.
  const bool protects = (api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0;
  mode_ =
      protects && mode == WatchMode::kBest ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING;
  may_handle_faults_ = !user_mode_only;
  if (mode_ == UFFDIO_REGISTER_MODE_MISSING && !may_handle_faults_) {
    // System calls of the program that touch a missing page would then fail by EFAULT.
    return Status(ErrorCode::kUnsupported,
                  "userfaultfd can neither watch by write protection here (Linux 5.7 on x86-64, "
                  "6.10 on arm64) nor handle the kernel's own faults; allow the latter by sysctl "
                  "vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd");
  }
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return Status(ErrorCode::kSystem, "eventfd: " + std::string(std::strerror(errno)));
  return start_thread();
}

Status Watcher::start_thread() {
  // A signal handler may unmap memory, which would then wait for the thread that it runs in.
  const SignalsBlocked blocked;
  const int failed = pthread_create(
      &thread_, nullptr,
      [](void* self) -> void* {
        static_cast<Watcher*>(self)->run();
        return nullptr;
      },
      this);
  if (failed != 0) {
    return Status(ErrorCode::kOutOfResources,
                  "a thread for memory events: " + std::string(std::strerror(failed)));
  }
  runs_ = true;
  pthread_setname_np(thread_, "unisono-memory");
  return Status();
}

Watcher::~Watcher() {
  if (!is_of_this_process()) {
    uffd_.release();  // a forked child: closed when it began, and the thread is not its own
    return;
  }
  if (!runs_) return;
  const std::uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  pthread_join(thread_, nullptr);
  // From here on nobody takes events. Closing the descriptor lets go those who wait for it.
  int own = uffd_.get();
  if (published_ != nullptr) published_->compare_exchange_strong(own, -1);
}

void Watcher::run() {
  std::array<pollfd, 2> waits{{{uffd_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  for (;;) {
    const int ready = poll(waits.data(), waits.size(), -1);
    if (ready < 0 && errno == EINTR) continue;
    const std::lock_guard lock(notes_mutex_);
    if (ready < 0 || (waits[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
      is_lost_ = true;  // somebody closed the descriptor: the kernel watches nothing any more
      note_everything();
      return;
    }
    drain();
    if (waits[1].revents != 0) return;
  }
}

// Called with notes_mutex_ held. read() lets those go whose events it takes, so the clients are
// told to look before; when they do, they wait for the mutex.
void Watcher::drain() {
  for (Notes* client = clients_; client != nullptr; client = client->next) {
    client->changed.store(true);
  }
  for (int reads = 0; reads < kReadsMax; ++reads) {
    const ssize_t bytes = read(uffd_.get(), messages_.data(), sizeof(messages_));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) {
      if (bytes < 0 && errno != EAGAIN) note_everything();
      return;
    }
    const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(uffd_msg);
    for (std::size_t i = 0; i < count; ++i) handle(messages_[i]);
  }
}

// What was noted is not watched any more: one rule for all events, and in missing mode the reason
// that dropped pages cause at most one fault.
void Watcher::handle(const uffd_msg& message) {
  switch (message.event) {
    case UFFD_EVENT_UNMAP:
      note({message.arg.remove.start, message.arg.remove.end});
      return;
    case UFFD_EVENT_REMOVE: {
      const Range range{message.arg.remove.start, message.arg.remove.end};
      note(range);
      try_unregister(range);
      return;
    }
    case UFFD_EVENT_REMAP: {
      // A copy: the kernel's structure is packed, and its parts may lie at any address.
      const std::uint64_t from = message.arg.remap.from, to = message.arg.remap.to;
      const std::uint64_t bytes = message.arg.remap.len;
      note({from, from + bytes});
      try_unregister({from, from + bytes});
      try_unregister({to, to + bytes});
      return;
    }
    case UFFD_EVENT_PAGEFAULT:
      handle_fault(message.arg.pagefault.address);
      return;
    default:
      note_everything();
  }
}

// The page is not what was registered, and the kernel shall serve it as if nobody watched. A large
// block at once where possible, because a fault for each page would be slow.
void Watcher::handle_fault(std::uint64_t address) {
  const Range page = widen({address, address + 1}, page_bytes());
  for (const std::uint64_t step : {kHugeSteps[0], page_bytes(), kHugeSteps[1]}) {
    const Range block = widen(page, step);
    if (!try_unregister(block)) continue;
    note(block);
    break;
  }
  uffdio_range wake{page.begin, page.end - page.begin};
  ioctl(uffd_.get(), UFFDIO_WAKE, &wake);
}

void Watcher::note(Range range) {
  for (Notes* client = clients_; client != nullptr; client = client->next) client->add(range);
}

void Watcher::note_everything() {
  for (Notes* client = clients_; client != nullptr; client = client->next) {
    client->everything = true;
    client->changed.store(true);
  }
}

void Watcher::attach(Notes* client) {
  const std::lock_guard lock(notes_mutex_);
  client->everything = is_lost_;
  client->changed.store(is_lost_);
  client->next = clients_;
  clients_ = client;
}

// The kernel refuses to change page tables by userfaultfd (EAGAIN, before it looks at the request)
// from the moment on that watched memory is unmapped until its event was taken. A request of no
// bytes is refused in any case (EINVAL) and so does nothing but ask.
bool Watcher::is_changing() const {
  uffdio_zeropage nothing{};
  return ioctl(uffd_.get(), UFFDIO_ZEROPAGE, &nothing) != 0 && errno == EAGAIN;
}

void Watcher::settle(Notes* client) {
  for (int yields = 0; yields < kYieldsMax; ++yields) {
    {
      const std::lock_guard lock(notes_mutex_);
      if (!is_lost_) drain();
    }
    if (!is_changing()) return;
    sched_yield();
  }
  const std::lock_guard lock(notes_mutex_);
  client->everything = true;
}

}  // namespace unisono::verbs
