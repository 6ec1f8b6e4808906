// A rank kills itself in the middle of all-reduce after all-reduce; the survivors say what they
// see, and when. Each rank is one process; the watching threads end it.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include "bench/peers/harness.h"

namespace bench {

inline Lockstep* g_fault_sync = nullptr;  // for the signal handler
inline std::atomic<std::uint64_t> g_fault_calls{0};

inline void say(const char* what) {
  const auto killed = static_cast<double>(g_fault_sync->header().moment.load());
  char line[512];
  const int length =
      std::snprintf(line, sizeof line, "FAULT rank %d: %s, %.1f ms after the kill\n",
                    g_fault_sync->rank(), what, killed > 0 ? (now_us() - killed) * 1e-3 : -1.0);
  if (write(2, line, std::min<std::size_t>(static_cast<std::size_t>(length), sizeof line)) < 0)
    return;
}

inline void on_signal(int number) {
  say(number == SIGTERM ? "got SIGTERM" : "got SIGINT");
  _exit(9);
}

inline void watch(double hang_after_s) {
  std::uint64_t calls = 0;
  double changed = now_us();
  int reports = 0;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (const std::uint64_t now = g_fault_calls.load(); now != calls) {
      calls = now;
      changed = now_us();
    }
    const double stalled_s = (now_us() - changed) * 1e-6;
    if (g_fault_sync->header().moment.load() != 0 && stalled_s > 1 + 4 * reports) {
      say("still inside all_reduce, no error yet");
      ++reports;
    }
    if (stalled_s > hang_after_s) {
      say("HANG: gave up waiting");
      _exit(7);
    }
  }
}

/// Does not return: ends with 5 when the library told the rank, 7 when it hung.
[[noreturn]] inline void run_fault(const Arguments& arguments, Lockstep& sync, Peer& peer,
                                   std::byte* arena) {
  g_fault_sync = &sync;
  const std::size_t bytes = arguments.sizes.back();
  const Slots slots = unisono::perf::make_slots(arena, bytes, bytes, false, 0);
  Point p{.kind = Kind::kAllReduce,
          .rank = sync.rank(),
          .ranks = sync.ranks(),
          .count = bytes / sizeof(float)};
  p.in = reinterpret_cast<float*>(slots.in(0));
  p.out = reinterpret_cast<float*>(slots.out(0));
  peer.begin(p, peer.variants(p.kind).front(), slots);
  sync.barrier();
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);
  if (sync.rank() == arguments.fault_rank) {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(arguments.fault_after_s));
      sync.header().moment.store(static_cast<std::uint64_t>(now_us()));
      kill(getpid(), SIGKILL);
    }).detach();
  } else {
    std::thread(watch, arguments.hang_after_s).detach();
  }
  try {
    for (;;) {
      peer.run(p);
      ++g_fault_calls;
    }
  } catch (const std::exception& error) {
    say((std::string("all_reduce failed: ") + error.what()).c_str());
  }
  try {
    if (peer.go_on()) say("went on with those that are left");
  } catch (const std::exception& error) {
    say((std::string("did not go on: ") + error.what()).c_str());
  }
  _exit(5);
}

}  // namespace bench
