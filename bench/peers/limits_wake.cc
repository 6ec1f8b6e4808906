// What it costs to tell another process something: cache lines, messages, futexes, yields; and to
// read its memory.
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <thread>

#include "bench/peers/limits.h"

namespace limits {
namespace {

/// Two lines, one for each direction.
struct Mailbox {
  Line lines[2];
  void clear() {
    lines[0].word = 0;
    lines[1].word = 0;
  }
};

Mailbox& shared_mailbox() {
  static Mailbox* const mailbox = reinterpret_cast<Mailbox*>(map(4096, MAP_SHARED));
  mailbox->clear();
  return *mailbox;
}

/// Ping-pong of `rounds` between two processes; seconds one way. Both functions get (own line,
/// other's line, round).
template <typename Tell, typename Await>
double one_way(int own_cpu, int other_cpu, std::uint32_t rounds, Tell&& tell, Await&& await) {
  Mailbox& mailbox = shared_mailbox();
  double seconds = 0;
  run_pair(
      own_cpu, other_cpu,
      [&] {
        const double begin = now_s();
        for (std::uint32_t i = 1; i <= rounds; ++i) {
          tell(mailbox.lines[0], i);
          await(mailbox.lines[1], i);
        }
        seconds = (now_s() - begin) / rounds / 2;
      },
      [&] {
        for (std::uint32_t i = 1; i <= rounds; ++i) {
          await(mailbox.lines[0], i);
          tell(mailbox.lines[1], i);
        }
      });
  return seconds;
}

void store(Line& line, std::uint32_t value) { line.word.store(value, std::memory_order_release); }

long futex(Line& line, int operation, std::uint32_t value) {
  return syscall(SYS_futex, &line.word, operation, value, nullptr, nullptr, 0);
}

void measure_messages() {
  char* area = map(2 << 20, MAP_SHARED);
  for (const std::size_t bytes : {64, 256, 1024, 4096, 16384, 65536, 262144}) {
    char* own = map(bytes);
    char* const halves[2] = {area, area + (1 << 20)};
    Mailbox& mailbox = shared_mailbox();
    const auto index = [&](const Line& line) { return &line == &mailbox.lines[1] ? 1 : 0; };
    const double seconds = one_way(
        0, 1, bytes <= 4096 ? 50000 : 5000,
        [&](Line& line, std::uint32_t i) {
          std::memcpy(halves[index(line)], own, bytes);
          store(line, i);
        },
        [&](Line& line, std::uint32_t i) {
          spin_until(line, i);
          std::memcpy(own, halves[index(line)], bytes);
        });
    row("shm_message_oneway", "copy in, flag, copy out", bytes, seconds * 1e6, "us");
    munmap(own, bytes);
  }
  munmap(area, 2 << 20);
}

void measure_sleeping() {
  for (const bool same_core : {false, true}) {
    const std::string where = same_core ? "same core, one way" : "other core, one way";
    const int other = same_core ? 0 : 1;
    const double by_futex = one_way(
        0, other, 20000,
        [](Line& line, std::uint32_t i) {
          store(line, i);
          futex(line, FUTEX_WAKE, 1);
        },
        [](Line& line, std::uint32_t i) {
          for (std::uint32_t now; (now = line.word.load(std::memory_order_acquire)) != i;) {
            futex(line, FUTEX_WAIT, now);
          }
        });
    row("futex_wake", where, 4, by_futex * 1e6, "us");
    const int events[2] = {eventfd(0, 0), eventfd(0, 0)};
    Mailbox& mailbox = shared_mailbox();
    const auto event = [&](const Line& line) { return events[&line == &mailbox.lines[1]]; };
    const double by_event = one_way(
        0, other, 20000, [&](Line& line, std::uint32_t) { eventfd_write(event(line), 1); },
        [&](Line& line, std::uint32_t) {
          eventfd_t value;
          eventfd_read(event(line), &value);
        });
    row("eventfd_wake", where, 8, by_event * 1e6, "us");
    close(events[0]);
    close(events[1]);
  }
}

/// Reads `bytes` at `remote` of process `pid` again and again; GB/s, or a negative number.
double read_speed(pid_t pid, char* own, char* remote, std::size_t bytes) {
  const int repeats = std::clamp(static_cast<int>(4e8 / static_cast<double>(bytes)), 4, 1000);
  std::vector<double> times;
  for (int r = 0; r < repeats; ++r) {
    iovec to{own, bytes}, from{remote, bytes};
    const double begin = now_s();
    if (process_vm_readv(pid, &to, 1, &from, 1, 0) != static_cast<ssize_t>(bytes)) return -1;
    times.push_back(now_s() - begin);
  }
  return static_cast<double>(bytes) / median(times) * 1e-9;
}

double single_copy_speed(std::size_t bytes, bool both_read) {
  Mailbox& mailbox = shared_mailbox();
  char* remote = map(bytes);
  char* own = map(bytes);
  const pid_t parent = getpid();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(1);
    std::memset(remote, 2, bytes);
    std::memset(own, 3, bytes);
    store(mailbox.lines[1], 1);
    spin_until(mailbox.lines[0], 1);
    if (both_read) read_speed(parent, own, remote, bytes);
    while (mailbox.lines[0].word.load() != 2) usleep(100);
    _exit(0);
  }
  pin(0);
  std::memset(own, 4, bytes);
  spin_until(mailbox.lines[1], 1);
  store(mailbox.lines[0], 1);
  const double speed = read_speed(child, own, remote, bytes);
  store(mailbox.lines[0], 2);
  waitpid(child, nullptr, 0);
  munmap(remote, bytes);
  munmap(own, bytes);
  return speed;
}

}  // namespace

void measure_wake_ups() {
  for (int round = 0; round < 3; ++round) {
    const double seconds = one_way(0, 1, 200000, store, spin_until);
    row("cacheline_pingpong", "two lines, spin, one way, round " + std::to_string(round), 64,
        seconds * 1e9, "ns");
  }
  measure_messages();
  measure_sleeping();
  const double seconds = one_way(0, 0, 100000, store, [](Line& line, std::uint32_t i) {
    while (line.word.load(std::memory_order_acquire) != i) sched_yield();
  });
  row("yield_switch", "sched_yield, same core, one way", 4, seconds * 1e6, "us");
}

void measure_single_copy() {
  for (const bool both_read : {false, true}) {
    for (std::size_t bytes = 64 << 10; bytes <= std::size_t{64} << 20; bytes *= 4) {
      row("process_vm_readv", both_read ? "both read at once, each" : "one reader", bytes,
          single_copy_speed(bytes, both_read), "GB/s");
    }
  }
}

}  // namespace limits
