// What the stream transport costs against a bare socket: two processes exchange frames at once both
// ways, by turns over a bare polled connection and over the transport, in the same run.
//   stream_bench [tcp|unix] [streams] [socket buffer bytes]
// prints one line per size, microseconds, median.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transports/tcp/stream_transport.h"

namespace unisono {
namespace {

using Bytes = std::vector<std::byte>;

double microseconds_since(TimePoint start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void stop(const std::string& why) {
  std::fprintf(stderr, "stream_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// A connected pair; index 0 is the parent's.
void make_pair(bool is_unix, UniqueFd out[2]) {
  int fds[2];
  if (is_unix) {
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) stop("socketpair");
  } else {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* name = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), name, bytes) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), name, &bytes) != 0) {
      stop("listen");
    }
    fds[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fds[0], name, bytes) != 0) stop("connect");
    fds[1] = ::accept(listener.get(), nullptr, nullptr);
  }
  const int one = 1;
  for (int i = 0; i < 2; ++i) {
    ::setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::fcntl(fds[i], F_SETFL, O_NONBLOCK);
    out[i].reset(fds[i]);
  }
}

// The bare exchange: `bytes` out and in at once over one or two connections, halves on each.
class Bare {
 public:
  Bare(std::vector<UniqueFd>* fds, std::size_t bytes) : fds_(*fds), out_(bytes), in_(bytes) {}

  void exchange() {
    const std::size_t streams = out_.size() < (1 << 20) ? 1 : fds_.size();
    std::size_t sent[2] = {}, got[2] = {}, bytes[2] = {out_.size() / streams, out_.size() / 2};
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < streams; ++i) {
        const std::size_t at = i * bytes[i];
        move(::send(fds_[i].get(), out_.data() + at + sent[i], bytes[i] - sent[i],
                    MSG_NOSIGNAL | MSG_DONTWAIT),
             &sent[i], bytes[i]);
        move(::recv(fds_[i].get(), in_.data() + at + got[i], bytes[i] - got[i], MSG_DONTWAIT),
             &got[i], bytes[i]);
        more = more || sent[i] < bytes[i] || got[i] < bytes[i];
      }
    }
  }

 private:
  static void move(ssize_t moved, std::size_t* at, std::size_t) {
    if (moved > 0) *at += static_cast<std::size_t>(moved);
  }

  std::vector<UniqueFd>& fds_;
  Bytes out_;
  Bytes in_;
};

// The transport's: the message in frames, as the engine sends a granted one.
class Framed final : public FrameSink {
 public:
  Framed(Transport* transport, Rank peer, std::size_t bytes)
      : transport_(*transport), endpoint_(transport->endpoint(peer)), out_(bytes), in_(bytes) {}

  void exchange() {
    wanted_ += out_.size();
    std::size_t posted = 0;
    while (posted < out_.size() || received_ < wanted_ || pending_ > 0) {
      while (posted < out_.size() && post(&posted)) {
      }
      transport_.poll(*this);
    }
  }

  Placement place(Rank, const FrameHeader& header) override {
    return {Placement::Kind::kInto, in_.data() + header.offset};
  }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader& header) override { received_ += header.payload_bytes; }
  void sent(Rank, std::uint64_t) override { --pending_; }
  void closed(Rank, const Status& cause) override {
    if (!cause) stop(cause.message());
  }

 private:
  bool post(std::size_t* posted) {
    const std::size_t bytes = std::min(out_.size() - *posted, kFramePayloadMax);
    FrameHeader header;
    header.kind = FrameKind::kData;
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    header.offset = *posted;
    const PostResult result =
        endpoint_.post_send(header, std::span(out_).subspan(*posted, bytes), 0);
    if (result == PostResult::kFull) return false;
    pending_ += result == PostResult::kPending;
    *posted += bytes;
    return true;
  }

  Transport& transport_;
  Endpoint& endpoint_;
  Bytes out_;
  Bytes in_;
  std::size_t received_ = 0;
  std::size_t wanted_ = 0;
  int pending_ = 0;
};

template <typename Exchange>
void measure(Exchange&& exchange, int rounds, std::vector<double>* times) {
  exchange();
  for (int i = 0; i < rounds; ++i) {
    const TimePoint start = Clock::now();
    exchange();
    times->push_back(microseconds_since(start));
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void run(Rank rank, Transport* transport, std::vector<UniqueFd>* bare_fds) {
  if (rank == 0)
    std::printf("%12s %12s %12s %8s %14s %14s\n", "bytes", "bare us", "frames us", "ratio",
                "fastest bare", "fastest frames");
  for (const std::size_t bytes :
       {std::size_t{4}, std::size_t{1024}, std::size_t{16} << 10, std::size_t{256} << 10,
        std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
    // A frame carries its header; the bare exchange of a small message carries as much.
    Bare bare(bare_fds, bytes < 1024 ? bytes + sizeof(FrameHeader) : bytes);
    Framed framed(transport, 1 - rank, bytes);
    const int rounds = bytes <= 16384 ? 2000 : bytes <= (1 << 20) ? 200 : 10;
    std::vector<double> bare_times, frame_times;
    for (int turn = 0; turn < 6; ++turn) {
      measure([&] { bare.exchange(); }, rounds, &bare_times);
      measure([&] { framed.exchange(); }, rounds, &frame_times);
    }
    if (rank != 0) continue;
    const double b = median(bare_times), f = median(frame_times);
    std::printf("%12zu %12.2f %12.2f %8.2f %14.2f %14.2f\n", bytes, b, f, f / b,
                *std::min_element(bare_times.begin(), bare_times.end()),
                *std::min_element(frame_times.begin(), frame_times.end()));
    std::fflush(stdout);
  }
}

int bench(bool is_unix, int streams, int buffer_bytes) {
  std::vector<UniqueFd> ends[2];
  for (int i = 0; i < std::min(streams, 2); ++i) {
    UniqueFd pair[2];
    make_pair(is_unix, pair);
    ends[0].push_back(std::move(pair[0]));
    ends[1].push_back(std::move(pair[1]));
  }
  UniqueFd control[2];
  make_pair(true, control);
  const Rank rank = ::fork() == 0 ? 1 : 0;
  pin(rank);
  StreamOptions options;
  options.family = is_unix ? StreamOptions::Family::kUnix : StreamOptions::Family::kTcp;
  options.rank = rank;
  options.size = 2;
  options.bind_address = "127.0.0.1";
  options.streams = streams;
  options.send_buffer_bytes = options.receive_buffer_bytes = buffer_bytes;
  auto transport = make_stream_transport(options);
  if (!transport) stop(transport.error().message());
  // Addresses over the control pair, in blocks of the largest size.
  char theirs[512] = "", own[512] = "";
  std::strncpy(own, (*transport)->address().c_str(), sizeof own - 1);
  if (::write(control[rank].get(), own, sizeof own) != sizeof own) stop("control");
  while (::read(control[rank].get(), theirs, sizeof theirs) != sizeof theirs) {
  }
  const std::vector<std::string> addresses =
      rank == 0 ? std::vector<std::string>{own, theirs} : std::vector<std::string>{theirs, own};
  if (const Status set = (*transport)->set_peers(addresses); !set) stop(set.message());
  run(rank, transport->get(), &ends[rank]);
  Framed last((*transport).get(), 1 - rank, 0);
  (*transport)->close(Clock::now() + std::chrono::seconds(5), last);
  if (rank == 1) std::_Exit(0);
  int status = 0;
  ::wait(&status);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  const bool is_unix = argc > 1 && std::string(argv[1]) == "unix";
  const int streams = argc > 2 ? std::atoi(argv[2]) : 2;
  const int buffer_bytes = argc > 3 ? std::atoi(argv[3]) : 0;
  return unisono::bench(is_unix, std::clamp(streams, 1, 8), std::max(buffer_bytes, 0));
}
