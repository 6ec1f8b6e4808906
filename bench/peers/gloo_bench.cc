// The harness of Gloo over its TCP transport. Forks the ranks itself; they meet through a
// FileStore in a fresh temporary folder. CSV on rank 0's standard output.
//
//   gloo_bench --ranks N [--algorithms ring,bcube,hd,ring_chunked]
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <math.h>  // an older Gloo header uses log2 without including it
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>

#include "bench/peers/fault.h"
#include "bench/peers/harness.h"

namespace {

using namespace bench;

// connectFullMesh took the store by reference before, by shared_ptr later.
template <typename Context, typename Device>
void connect(Context& context, std::shared_ptr<gloo::rendezvous::Store> store, Device& device) {
  if constexpr (requires { context.connectFullMesh(*store, device); }) {
    context.connectFullMesh(*store, device);
  } else {
    context.connectFullMesh(store, device);
  }
}

class GlooPeer : public Peer {
 public:
  GlooPeer(std::shared_ptr<gloo::Context> context, std::vector<std::string> algorithms)
      : context_(std::move(context)), algorithms_(std::move(algorithms)) {}

  std::vector<std::string> variants(Kind kind) override {
    if (kind == Kind::kAllReduce) return algorithms_;
    if (kind == Kind::kReduceScatter) return {"hd"};
    return {""};
  }

  bool begin(const Point& p, const std::string& variant, const Slots& slots) override {
    variant_ = variant;
    objects_.clear();
    bound_.reset();
    base_ = slots.base;
    const bool is_object = variant == "hd" || variant == "ring_chunked";
    if (is_object) return make_objects(p, slots);
    if (p.kind == Kind::kSendReceive || p.kind == Kind::kPingPong) {
      bound_ = context_->createUnboundBuffer(slots.base, slots.bytes());
    }
    return true;
  }
  bool is_in_place() override { return !objects_.empty(); }

  void run(const Point& p) override {
    if (!objects_.empty()) return objects_[static_cast<std::size_t>(p.slot)]->run();
    switch (p.kind) {
      case Kind::kBarrier:
        return barrier();
      case Kind::kAllReduce:
        return all_reduce(p);
      case Kind::kAllGather:
        return all_gather(p);
      case Kind::kBroadcast:
        return broadcast(p);
      case Kind::kGather:
        return gather(p);
      case Kind::kScatter:
        return scatter(p);
      case Kind::kAllToAll:
        return all_to_all(p);
      case Kind::kSendReceive:
        return send_receive(p);
      case Kind::kPingPong:
        return ping_pong(p);
      case Kind::kReduceScatter:
        return;  // always an object
    }
  }

 private:
  /// The older interface works in place, on an object that is built once and run many times. So
  /// many objects as small buffers would need to be cold are not made.
  bool make_objects(const Point& p, const Slots& slots) {
    constexpr int kObjectsMax = 64;
    if (slots.count > kObjectsMax) return false;
    const int count = static_cast<int>(p.count);
    const std::vector<int> blocks(static_cast<std::size_t>(p.ranks), static_cast<int>(p.block));
    for (int slot = 0; slot < slots.count; ++slot) {
      const std::vector<float*> data{reinterpret_cast<float*>(slots.in(slot))};
      if (p.kind == Kind::kReduceScatter) {
        objects_.push_back(std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
            context_, data, count, blocks));
      } else if (variant_ == "hd") {
        objects_.push_back(
            std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, data, count));
      } else {
        objects_.push_back(
            std::make_unique<gloo::AllreduceRingChunked<float>>(context_, data, count));
      }
    }
    return true;
  }

  void barrier() {
    gloo::BarrierOptions options(context_);
    options.setTag(tag_++);
    gloo::barrier(options);
  }
  void all_reduce(const Point& p) {
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(variant_ == "ring" ? Algorithm::RING : Algorithm::BCUBE);
    options.setInput(p.in, p.count);
    options.setOutput(p.out, p.count);
    options.setTag(tag_++);
    options.setReduceFunction([](void* out, const void* left, const void* right, size_t count) {
      gloo::sum<float>(out, left, right, count);
    });
    gloo::allreduce(options);
  }
  void all_gather(const Point& p) {
    gloo::AllgatherOptions options(context_);
    options.setInput(p.in, p.block);
    options.setOutput(p.out, p.count);
    options.setTag(tag_++);
    gloo::allgather(options);
  }
  void broadcast(const Point& p) {
    gloo::BroadcastOptions options(context_);
    options.setRoot(0);
    options.setOutput(p.rank == 0 ? p.in : p.out, p.count);
    options.setTag(tag_++);
    gloo::broadcast(options);
  }
  void gather(const Point& p) {
    gloo::GatherOptions options(context_);
    options.setRoot(0);
    options.setInput(p.in, p.block);
    if (p.rank == 0) options.setOutput(p.out, p.count);
    options.setTag(tag_++);
    gloo::gather(options);
  }
  void scatter(const Point& p) {
    gloo::ScatterOptions options(context_);
    options.setRoot(0);
    if (p.rank == 0) {
      std::vector<float*> blocks;
      for (int r = 0; r < p.ranks; ++r) {
        blocks.push_back(p.in + static_cast<std::size_t>(r) * p.block);
      }
      options.setInputs(blocks, p.block);
    }
    options.setOutput(p.out, p.block);
    options.setTag(tag_++);
    gloo::scatter(options);
  }
  void all_to_all(const Point& p) {
    gloo::AlltoallOptions options(context_);
    options.setInput(p.in, p.count);
    options.setOutput(p.out, p.count);
    options.setTag(tag_++);
    gloo::alltoall(options);
  }

  // Point to point works on the whole arena, bound once.
  static constexpr std::uint64_t kSlot = std::uint64_t{1} << 40;
  std::size_t offset(const float* at) const {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(at) - base_);
  }
  void post_receive(const Point& p, int from) {
    bound_->recv(from, kSlot, offset(p.out), p.count * sizeof(float));
  }
  void post_send(const Point& p, int to) {
    bound_->send(to, kSlot, offset(p.in), p.count * sizeof(float));
  }
  void send_receive(const Point& p) {
    post_receive(p, p.previous());
    post_send(p, p.next());
    bound_->waitSend();
    bound_->waitRecv();
  }
  void ping_pong(const Point& p) {
    const int partner = 1 - p.rank;
    if (p.rank == 0) {
      post_send(p, partner);
      bound_->waitSend();
    }
    post_receive(p, partner);
    bound_->waitRecv();
    if (p.rank == 1) {
      post_send(p, partner);
      bound_->waitSend();
    }
  }

  std::shared_ptr<gloo::Context> context_;
  std::vector<std::string> algorithms_;
  std::string variant_;
  std::vector<std::unique_ptr<gloo::Algorithm>> objects_;
  std::unique_ptr<gloo::transport::UnboundBuffer> bound_;
  std::byte* base_ = nullptr;
  std::uint32_t tag_ = 1;
};

int run_rank(const Arguments& arguments, void* memory, int rank, const std::string& folder,
             const std::vector<std::string>& algorithms) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, arguments.ranks);
  connect(*context, std::make_shared<gloo::rendezvous::FileStore>(folder), device);
  Lockstep sync(memory, rank, arguments.ranks);
  sync.sleeps = true;  // Gloo's own threads need the core that a spinning rank would take
  GlooPeer peer(context, algorithms);
  std::byte* arena = map_private(arena_bytes(arguments));
  if (arguments.fault_rank >= 0) run_fault(arguments, sync, peer, arena);
  return Walk(arguments, sync, peer, arena).run();
}

/// The first rank to fail ends the others, so that a broken run cannot hang here; not in a fault
/// run, where the survivors are what is being watched.
int wait_for(std::vector<pid_t> children, bool is_fault_run) {
  int worst = 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) break;
    std::erase(children, ended);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    worst = std::max(worst, code);
    if (code > 1 && !is_fault_run) {
      for (const pid_t child : children) kill(child, SIGKILL);
    }
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  std::vector<std::string> algorithms{"ring", "bcube", "hd", "ring_chunked"};
  for (std::size_t i = 0; i + 1 < arguments.rest.size(); ++i) {
    if (arguments.rest[i] == "--algorithms") algorithms = split(arguments.rest[i + 1]);
  }
  const char* base = std::getenv("TMPDIR");
  std::string folder = std::string(base != nullptr ? base : "/tmp") + "/gloo-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  void* memory = share_with_children(arguments.ranks);
  if (memory == nullptr) return 2;
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int status = 3;
    try {
      status = run_rank(arguments, memory, rank, folder, algorithms);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    std::fflush(stdout);
    _exit(status);
  }
  const int status = wait_for(children, arguments.fault_rank >= 0);
  std::filesystem::remove_all(folder);
  return status;
}
