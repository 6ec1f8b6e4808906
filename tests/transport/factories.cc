// One function per transport; see factories.h.
#include "tests/transport/factories.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "base/handshake.h"
#include "tests/verbs/verbs_kinds.h"
#include "transports/loopback/loopback_transport.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::test {
namespace {

/// The same in every rank of a world, in no other world of this machine.
std::string job_id(const SharedWorld& world) {
  struct stat status {};
  if (fstat(world.fd(), &status) != 0) std::abort();
  return "conformance-" + std::to_string(status.st_dev) + "-" + std::to_string(status.st_ino);
}

std::unique_ptr<Transport> make_loopback(SharedWorld& world, Rank rank) {
  return std::make_unique<LoopbackTransport>(LoopbackHub::of_job(job_id(world), world.ranks()),
                                             rank);
}

// All but the smallest payloads are read where they lie, which the ranks of one process can do.
class ThreadLoans final : public shm::Loans {
 public:
  ThreadLoans() : Loans(1000) {}
  shm::MemoryHandle lend(Rank, const FrameHeader&,
                         std::span<const std::byte> payload) const override {
    return {shm::MemoryPath::kPointer, payload.size(),
            reinterpret_cast<std::uint64_t>(payload.data())};
  }
  Status collect(Rank, const shm::MemoryHandle& loan, std::span<std::byte> out) const override {
    std::memcpy(out.data(), reinterpret_cast<const void*>(loan.address), out.size());
    return {};
  }
};

Result<std::unique_ptr<Transport>> make_shm(SharedWorld& world, Rank rank,
                                            std::unique_ptr<shm::Loans> loans) {
  std::vector<Rank> peers;
  for (Rank peer = 0; peer < world.ranks(); ++peer) {
    if (peer != rank) peers.push_back(peer);
  }
  return shm::ShmTransport::make(
      rank, std::move(peers),
      [&world](Rank from, Rank to) -> Result<shm::RingMemory> {
        return shm::RingMemory{world.ring(from, to), world.ring_bytes()};
      },
      std::move(loans));
}

Result<std::unique_ptr<Transport>> make_stream(SharedWorld& world, Rank rank,
                                               StreamOptions::Family family,
                                               bool checksum = false) {
  StreamOptions options;
  options.family = family;
  options.checksum = checksum;
  options.rank = rank;
  options.size = world.ranks();
  options.job_id = job_id(world);
  UNISONO_ASSIGN(options.key, JobKey::from_text("the conformance suite's key, known to all"));
  if (family == StreamOptions::Family::kTcp) options.bind_address = "127.0.0.1";
  return make_stream_transport(std::move(options));
}

Result<std::unique_ptr<Transport>> make_unconnected(const std::string& kind, SharedWorld& world,
                                                    Rank rank) {
  if (kind == "loopback") return make_loopback(world, rank);
  if (kind == "tcp") return make_stream(world, rank, StreamOptions::Family::kTcp);
  if (kind == "tcp_with_sums") return make_stream(world, rank, StreamOptions::Family::kTcp, true);
  if (kind == "unix") return make_stream(world, rank, StreamOptions::Family::kUnix);
  if (kind.starts_with("verbs")) {
    UNISONO_ASSIGN(auto side, make_stream(world, rank, StreamOptions::Family::kTcp));
    return make_verbs(kind, job_id(world), world.ranks(), rank, std::move(side));
  }
  std::unique_ptr<shm::Loans> loans;
  if (kind.starts_with("shm_lending")) loans = std::make_unique<ThreadLoans>();
  return make_shm(world, rank, std::move(loans));
}

}  // namespace

const std::vector<TransportKind>& transport_kinds() {
  static const std::vector<TransportKind> kinds = [] {
    std::vector<TransportKind> all = {
        {"loopback", 0, false},
        {"shm", 128 * 1024, true},
        {"shm_smallest_ring", shm::kRingBytesMin, false},
        {"shm_lending", 128 * 1024, false},
        {"shm_lending_smallest_ring", shm::kRingBytesMin, false},
        {"tcp", 0, true},
        {"tcp_with_sums", 0, true},
        {"unix", 0, true},
    };
    const std::vector<TransportKind> verbs = verbs_kinds();
    all.insert(all.end(), verbs.begin(), verbs.end());
    return all;
  }();
  return kinds;
}

const TransportKind& transport_kind(const std::string& name) {
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == name) return kind;
  }
  std::abort();
}

Result<std::unique_ptr<Transport>> make_transport(const std::string& kind, SharedWorld& world,
                                                  Rank rank) {
  auto transport = make_unconnected(kind, world, rank);
  if (!transport) {
    world.fail();
    return transport;
  }
  world.set_text(rank, (*transport)->address());
  if (!world.barrier()) return Status(ErrorCode::kRendezvous, "another rank failed to start");
  const Status connected = (*transport)->set_peers(world.texts());
  // Nobody uses its transport before everybody has one: a loopback hub is held by all by then.
  if (!world.barrier()) return Status(ErrorCode::kRendezvous, "another rank failed to connect");
  if (!connected) return connected;
  return transport;
}

}  // namespace unisono::test
