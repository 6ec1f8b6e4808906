// The harness of unisono, over its public C++ interface. Start it under `unisono run`, or any
// launcher that sets RANK and WORLD_SIZE. CSV on rank 0's standard output.
//
// --transport is what init() gets; --buffers allocated takes them from unisono::allocate.
#include <array>
#include <memory>

#include "bench/peers/fault.h"
#include "bench/peers/harness.h"
#include "unisono/unisono.hpp"

namespace {

using namespace bench;
using unisono::Call;
using unisono::DataType;

class UnisonoPeer : public Peer {
 public:
  explicit UnisonoPeer(unisono::Communicator& communicator) : communicator_(communicator) {}

  void run(const Point& p) override {
    constexpr DataType kType = DataType::kFloat32;
    switch (p.kind) {
      case Kind::kBarrier:
        return communicator_.barrier();
      case Kind::kAllReduce:
        return communicator_.all_reduce(p.in, p.out, p.count, kType, unisono::ops::sum);
      case Kind::kAllGather:
        return communicator_.all_gather(p.in, p.out, p.block, kType);
      case Kind::kReduceScatter:
        return communicator_.reduce_scatter(p.in, p.out, p.block, kType, unisono::ops::sum);
      case Kind::kBroadcast:
        return communicator_.broadcast(p.rank == 0 ? p.in : p.out, p.count, kType, 0);
      case Kind::kGather:
        return communicator_.gather(p.in, p.out, p.block, kType, 0);
      case Kind::kScatter:
        return communicator_.scatter(p.in, p.out, p.block, kType, 0);
      case Kind::kAllToAll:
        return communicator_.all_to_all(p.in, p.out, p.block, kType);
      case Kind::kSendReceive:
        return send_receive(p);
      case Kind::kPingPong:
        return ping_pong(p);
    }
  }

  bool go_on() override {
    unisono::Communicator rest = communicator_.shrink();
    const auto expected = static_cast<float>(rest.size());
    float one = 1, sum = 0;
    rest.all_reduce(&one, &sum, 1, DataType::kFloat32, unisono::ops::sum);
    // Who ends without leaving has failed, and some may not have their sum yet.
    rest.close();
    communicator_.close();
    return sum == expected;
  }

 private:
  void send_receive(const Point& p) {
    const std::array<Call, 2> calls{Call{.collective = unisono::Collective::kReceive,
                                         .out = p.out,
                                         .count = p.count,
                                         .type = DataType::kFloat32,
                                         .peer = p.previous()},
                                    Call{.collective = unisono::Collective::kSend,
                                         .in = p.in,
                                         .count = p.count,
                                         .type = DataType::kFloat32,
                                         .peer = p.next()}};
    communicator_.group(calls);
  }
  void ping_pong(const Point& p) {
    const int partner = 1 - p.rank;
    if (p.rank == 0) communicator_.send(p.in, p.count, DataType::kFloat32, partner);
    communicator_.receive(p.out, p.count, DataType::kFloat32, partner);
    if (p.rank == 1) communicator_.send(p.in, p.count, DataType::kFloat32, partner);
  }

  unisono::Communicator& communicator_;
};

void* meet(unisono::Communicator& communicator) {
  std::array<char, 64> path{};
  const int ranks = communicator.size();
  const bool is_first = communicator.rank() == 0;
  void* memory = is_first ? share_under(path.data(), path.size(), ranks) : nullptr;
  communicator.broadcast(path.data(), path.size(), DataType::kInt8, 0);
  return is_first ? memory : open_shared(path.data(), ranks);
}

int run_rank(const Arguments& arguments) {
  unisono::InitOptions options;
  if (arguments.transport != "default") options.transport = arguments.transport;
  unisono::Communicator communicator = unisono::init(options);
  void* memory = meet(communicator);
  if (memory == nullptr) {
    std::fprintf(stderr, "rank %d: no shared memory\n", communicator.rank());
    return 2;
  }
  Lockstep sync(memory, communicator.rank(), communicator.size());
  UnisonoPeer peer(communicator);
  const std::size_t bytes = arena_bytes(arguments);
  const bool is_allocated = arguments.buffers == "allocated";
  std::byte* arena = is_allocated ? static_cast<std::byte*>(unisono::allocate(communicator, bytes))
                                  : map_private(bytes);
  if (arguments.fault_rank >= 0) run_fault(arguments, sync, peer, arena);
  const int status = Walk(arguments, sync, peer, arena).run();
  if (is_allocated) unisono::release(communicator, arena);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  try {
    return run_rank(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unisono_bench: %s\n", error.what());
    return 2;
  }
}
