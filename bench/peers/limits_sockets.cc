// Latency and bandwidth of stream sockets between two processes of this host.
#include "bench/peers/limits_sockets.h"

#include <thread>

#include "bench/peers/limits.h"

namespace limits {
namespace {

bool send_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(socket, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* data, std::size_t bytes, int flags = 0) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, data, bytes, flags);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void measure_latency(const std::string& name, bool is_unix) {
  struct Variant {
    const char* name;
    int other_cpu, flags;
  };
  constexpr Variant kVariants[] = {{"blocking, two cores, one way", 1, 0},
                                   {"polling receive, two cores, one way", 1, MSG_DONTWAIT},
                                   {"blocking, same core, one way", 0, 0}};
  constexpr int kRounds = 10000;
  for (const Variant& variant : kVariants) {
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{4096}, std::size_t{65536}}) {
      const SocketPair sockets(is_unix);
      std::vector<char> data(bytes);
      double seconds = 0;
      run_pair(
          0, variant.other_cpu,
          [&] {
            const double begin = now_s();
            for (int i = 0; i < kRounds; ++i) {
              send_all(sockets[0], data.data(), bytes);
              receive_all(sockets[0], data.data(), bytes, variant.flags);
            }
            seconds = (now_s() - begin) / kRounds / 2;
          },
          [&] {
            for (int i = 0; i < kRounds; ++i) {
              receive_all(sockets[1], data.data(), bytes, variant.flags);
              send_all(sockets[1], data.data(), bytes);
            }
          });
      row(name + "_latency", variant.name, bytes, seconds * 1e6, "us");
    }
  }
}

constexpr std::size_t kTotal = std::size_t{2} << 30;

void measure_one_way(const std::string& name, bool is_unix, std::size_t bytes) {
  char* data = map(bytes);
  const SocketPair sockets(is_unix);
  double seconds = 0;
  run_pair(
      0, 1,
      [&] {
        const double begin = now_s();
        for (std::size_t done = 0; done < kTotal; done += bytes) send_all(sockets[0], data, bytes);
        receive_all(sockets[0], data, 1);
        seconds = now_s() - begin;
      },
      [&] {
        for (std::size_t done = 0; done < kTotal; done += bytes) {
          receive_all(sockets[1], data, bytes);
        }
        send_all(sockets[1], data, 1);
      });
  row(name + "_bandwidth", "1 stream one way", bytes, kTotal / seconds * 1e-9, "GB/s");
  munmap(data, bytes);
}

/// Two processes, each with a sending and a receiving thread on any core.
void measure_both_ways(const std::string& name, bool is_unix, std::size_t bytes) {
  char* data = map(bytes);
  const SocketPair there(is_unix), back(is_unix);
  const auto both = [&](int sending, int receiving) {
    cpu_set_t all;
    CPU_ZERO(&all);
    const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 0; i < cpus; ++i) CPU_SET(i, &all);
    sched_setaffinity(0, sizeof all, &all);
    std::vector<char> received(bytes);
    std::thread sender([&] {
      for (std::size_t done = 0; done < kTotal / 2; done += bytes) send_all(sending, data, bytes);
    });
    for (std::size_t done = 0; done < kTotal / 2; done += bytes) {
      receive_all(receiving, received.data(), bytes);
    }
    sender.join();
  };
  const double begin = now_s();
  run_pair(
      0, 1, [&] { both(there[0], back[0]); }, [&] { both(back[1], there[1]); });
  const double seconds = now_s() - begin;
  row(name + "_bandwidth", "2 streams opposite ways, each", bytes, kTotal / 2 / seconds * 1e-9,
      "GB/s");
  munmap(data, bytes);
}

}  // namespace

void measure_sockets() {
  for (const bool is_unix : {false, true}) {
    const std::string name = is_unix ? "unix" : "tcp_loopback";
    measure_latency(name, is_unix);
    for (const std::size_t kib : {64, 256, 1024, 4096}) {
      measure_one_way(name, is_unix, kib << 10);
      measure_both_ways(name, is_unix, kib << 10);
    }
  }
}

}  // namespace limits
