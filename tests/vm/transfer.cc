// The processes of a bare transfer and what they do; see transfer.h. The parent orders each repeat
// over a socket per process and gets back when it began and ended.
#include "tests/vm/transfer.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "tests/vm/device.h"

namespace unisono::vm {
namespace {

constexpr int kAnswerLimitMs = 120'000;
constexpr std::uint32_t kInFlight = 16;
constexpr std::uint32_t kReceives = 64;
constexpr std::uint32_t kInlineMax = 256;
constexpr std::uint64_t kSignalEvery = 16;

enum class Order : char { kGo = 'g', kVerify = 'v' };

/// Seconds of the clock that all processes share.
struct Span {
  double begin = 0;
  double end = 0;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename T>
void put(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) {
    throw std::runtime_error("a process of the transfer is gone");
  }
}

/// False at the end of the stream.
template <typename T>
bool get(int fd, T& value) {
  const ssize_t bytes = recv(fd, &value, sizeof value, MSG_WAITALL);
  if (bytes == 0) return false;
  if (bytes != static_cast<ssize_t>(sizeof value)) throw std::runtime_error("short message");
  return true;
}

std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 251); }

/// What the two ends tell each other before they begin.
struct Hello {
  Address address;
  std::uint32_t key = 0;
  std::uint64_t memory = 0;
};

/// One process's end. `leads`: it starts the messages; the other end answers or just lies there.
class Party {
 public:
  Party(const TransferCase& transfer, const TransferOptions& options, bool leads,
        const std::string& device, int peer)
      : transfer_(transfer),
        options_(options),
        leads_(leads),
        device_(open_device(device)),
        memory_(std::max<std::size_t>(transfer.bytes, 4096)),
        region_(register_memory(device_, memory_.data(), memory_.bytes())),
        cq_(ibv_create_cq(device_.context.get(), 512, nullptr, nullptr, 0)),
        queue_pair_(make_queue_pair(device_, cq_.get(), {.inline_bytes = kInlineMax})) {
    if (!region_ || !cq_ || !queue_pair_) throw std::runtime_error("no resources on " + device);
    if (holds_source()) {
      for (std::size_t i = 0; i < transfer.bytes; ++i) memory_.data()[i] = pattern(i);
    }
    const Hello mine{.address = address_of(device_, queue_pair_.get()),
                     .key = region_->rkey,
                     .memory = reinterpret_cast<std::uint64_t>(memory_.data())};
    put(peer, mine);
    if (!get(peer, theirs_) || connect(device_, queue_pair_.get(), theirs_.address) != 0) {
      throw std::runtime_error("no connection from " + device);
    }
    for (std::uint32_t i = 0; i < kReceives; ++i) post_receive();
    // Neither may send before the other can receive.
    put(peer, 'r');
    char ready = 0;
    if (!get(peer, ready)) throw std::runtime_error("the other end is gone");
  }

  /// Does what the parent orders until it hangs up.
  void serve(int parent) {
    put(parent, Span{});
    for (Order order; get(parent, order);) {
      Span span{.begin = now()};
      if (order == Order::kVerify) {
        verify();
      } else if (transfer_.operation == Operation::kPingPong) {
        for (int round = 0; round < options_.rounds; ++round) play_round(round);
      } else if (leads_) {
        stream();
      }
      span.end = now();
      put(parent, span);
    }
  }

 private:
  bool holds_source() const {
    return transfer_.operation == Operation::kPingPong ||
           leads_ == (transfer_.operation == Operation::kWriteStream);
  }

  void verify() const {
    if (transfer_.operation != Operation::kPingPong && holds_source()) return;
    for (std::size_t i = 0; i < transfer_.bytes; ++i) {
      if (memory_.data()[i] != pattern(i)) throw std::runtime_error("wrong bytes arrived");
    }
  }

  void post_receive() {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(queue_pair_.get(), &request, &bad) != 0) {
      throw std::runtime_error("post_recv failed");
    }
  }

  void post(ibv_wr_opcode opcode, bool signalled, std::uint32_t immediate = 0) {
    ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(memory_.data()),
                  .length = transfer_.bytes,
                  .lkey = region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    if (signalled) request.send_flags |= IBV_SEND_SIGNALED;
    if (opcode != IBV_WR_RDMA_READ && transfer_.bytes <= kInlineMax) {
      request.send_flags |= IBV_SEND_INLINE;
    }
    request.imm_data = immediate;
    request.wr.rdma.remote_addr = theirs_.memory;
    request.wr.rdma.rkey = theirs_.key;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(queue_pair_.get(), &request, &bad) != 0) {
      throw std::runtime_error("post_send failed");
    }
  }

  // The next completion, waited for as the library waits: some empty polls, then yields.
  ibv_wc wait() {
    ibv_wc completion;
    for (int empty = 0; ibv_poll_cq(cq_.get(), 1, &completion) == 0; ++empty) {
      if (empty >= options_.polls) sched_yield();
    }
    if (completion.status != IBV_WC_SUCCESS) {
      throw std::runtime_error(std::string("completion: ") + ibv_wc_status_str(completion.status));
    }
    return completion;
  }

  void stream() {
    const auto opcode =
        transfer_.operation == Operation::kReadStream ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    const std::uint64_t messages = options_.stream_bytes / transfer_.bytes;
    std::uint64_t posted = 0;
    for (std::uint64_t done = 0; done < messages; ++done) {
      for (; posted < messages && posted < done + kInFlight; ++posted) post(opcode, true);
      wait();
    }
  }

  void play_round(int round) {
    const bool signalled = ++sent_ % kSignalEvery == 0;
    const auto immediate = static_cast<std::uint32_t>(round);
    if (leads_) post(IBV_WR_RDMA_WRITE_WITH_IMM, signalled, immediate);
    ibv_wc completion = wait();
    while (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) completion = wait();
    if (completion.imm_data != immediate) throw std::runtime_error("a message went missing");
    post_receive();
    if (!leads_) post(IBV_WR_RDMA_WRITE_WITH_IMM, signalled, immediate);
  }

  const TransferCase& transfer_;
  const TransferOptions& options_;
  const bool leads_;
  Device device_;
  Memory memory_;
  Owned<ibv_mr> region_;
  Owned<ibv_cq> cq_;
  Owned<ibv_qp> queue_pair_;
  Hello theirs_;
  std::uint64_t sent_ = 0;
};

/// All processes of one transfer; the destructor ends them.
class Parties {
 public:
  Parties(const TransferCase& transfer, const TransferOptions& options) {
    for (int stream = 0; stream < transfer.streams; ++stream) {
      int link[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, link) != 0) throw std::runtime_error("socketpair");
      for (const int end : {0, 1}) {
        const std::size_t device = static_cast<std::size_t>(stream + end) % options.devices.size();
        start(transfer, options, end == 0, options.devices[device], link[end]);
      }
      close(link[0]);
      close(link[1]);
    }
    for (const int fd : orders_) answer_of(fd);
  }

  ~Parties() {
    for (const int fd : orders_) close(fd);
    for (const pid_t process : processes_) kill(process, SIGKILL);
    for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  }

  Parties(const Parties&) = delete;
  Parties& operator=(const Parties&) = delete;

  /// Seconds from the first start to the last end of those that lead.
  double carry_out(Order order) {
    for (const int fd : orders_) put(fd, order);
    double begin = 0;
    double end = 0;
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      const Span span = answer_of(orders_[i]);
      if (i % 2 != 0) continue;
      begin = i == 0 ? span.begin : std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
    return end - begin;
  }

 private:
  void start(const TransferCase& transfer, const TransferOptions& options, bool leads,
             const std::string& device, int link) {
    int control[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) throw std::runtime_error("socketpair");
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("fork");
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // The parent's ends of earlier processes would keep those from seeing it hang up.
      for (const int fd : orders_) close(fd);
      close(control[0]);
      _exit(run(transfer, options, leads, device, link, control[1]));
    }
    close(control[1]);
    orders_.push_back(control[0]);
    processes_.push_back(process);
  }

  static int run(const TransferCase& transfer, const TransferOptions& options, bool leads,
                 const std::string& device, int link, int control) {
    try {
      Party(transfer, options, leads, device, link).serve(control);
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s of %s, %s: %s\n", leads ? "leader" : "follower",
                   name_of(transfer.operation), device.c_str(), error.what());
      return 1;
    }
  }

  static Span answer_of(int fd) {
    pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
    Span span;
    if (poll(&waited, 1, kAnswerLimitMs) != 1 || !get(fd, span)) {
      throw std::runtime_error("a process of the transfer failed or does not answer");
    }
    return span;
  }

  std::vector<int> orders_;  ///< leader and follower of each stream in turn
  std::vector<pid_t> processes_;
};

}  // namespace

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::kWriteStream:
      return "write_stream";
    case Operation::kReadStream:
      return "read_stream";
    case Operation::kPingPong:
      return "write_imm_ping_pong";
  }
  return "";
}

std::vector<Sample> run_transfer(const TransferCase& transfer, const TransferOptions& options) {
  const std::uint64_t messages = transfer.operation == Operation::kPingPong
                                     ? static_cast<std::uint64_t>(options.rounds)
                                     : options.stream_bytes / transfer.bytes;
  Parties parties(transfer, options);
  parties.carry_out(Order::kGo);
  std::vector<Sample> samples;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    samples.push_back({.seconds = parties.carry_out(Order::kGo), .messages = messages});
  }
  parties.carry_out(Order::kVerify);
  return samples;
}

}  // namespace unisono::vm
