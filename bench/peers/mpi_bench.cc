// The harness of MPI: the same source is compiled with each MPI's own compiler wrapper.
// CSV on rank 0's standard output.
#include <mpi.h>

#include <stdexcept>

#include "bench/peers/fault.h"
#include "bench/peers/harness.h"

namespace {

using namespace bench;

void check(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(text, static_cast<std::size_t>(length)));
}

class MpiPeer : public Peer {
 public:
  void run(const Point& p) override {
    const MPI_Comm world = MPI_COMM_WORLD;
    const int count = static_cast<int>(p.count), block = static_cast<int>(p.block);
    switch (p.kind) {
      case Kind::kBarrier:
        return check(MPI_Barrier(world));
      case Kind::kAllReduce:
        return check(MPI_Allreduce(p.in, p.out, count, MPI_FLOAT, MPI_SUM, world));
      case Kind::kAllGather:
        return check(MPI_Allgather(p.in, block, MPI_FLOAT, p.out, block, MPI_FLOAT, world));
      case Kind::kReduceScatter:
        return check(MPI_Reduce_scatter_block(p.in, p.out, block, MPI_FLOAT, MPI_SUM, world));
      case Kind::kBroadcast:
        return check(MPI_Bcast(p.rank == 0 ? p.in : p.out, count, MPI_FLOAT, 0, world));
      case Kind::kGather:
        return check(MPI_Gather(p.in, block, MPI_FLOAT, p.out, block, MPI_FLOAT, 0, world));
      case Kind::kScatter:
        return check(MPI_Scatter(p.in, block, MPI_FLOAT, p.out, block, MPI_FLOAT, 0, world));
      case Kind::kAllToAll:
        return check(MPI_Alltoall(p.in, block, MPI_FLOAT, p.out, block, MPI_FLOAT, world));
      case Kind::kSendReceive:
        return check(MPI_Sendrecv(p.in, count, MPI_FLOAT, p.next(), 0, p.out, count, MPI_FLOAT,
                                  p.previous(), 0, world, MPI_STATUS_IGNORE));
      case Kind::kPingPong:
        return ping_pong(p, count);
    }
  }

#ifdef MPIX_ERR_PROC_FAILED
  bool go_on() override {
    MPI_Comm rest = MPI_COMM_NULL;
    check(MPIX_Comm_revoke(MPI_COMM_WORLD));
    check(MPIX_Comm_shrink(MPI_COMM_WORLD, &rest));
    float one = 1, sum = 0;
    int size = 0;
    check(MPI_Comm_size(rest, &size));
    check(MPI_Allreduce(&one, &sum, 1, MPI_FLOAT, MPI_SUM, rest));
    return sum == static_cast<float>(size);
  }
#endif

 private:
  static void ping_pong(const Point& p, int count) {
    const int partner = 1 - p.rank;
    if (p.rank == 0) check(MPI_Send(p.in, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD));
    check(MPI_Recv(p.out, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (p.rank == 1) check(MPI_Send(p.in, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD));
  }
};

void* meet(int rank, int ranks) {
  char path[64] = {};
  void* memory = rank == 0 ? share_under(path, sizeof path, ranks) : nullptr;
  MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
  return rank == 0 ? memory : open_shared(path, ranks);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  int provided = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  void* memory = meet(rank, ranks);
  if (memory == nullptr) {
    std::fprintf(stderr, "rank %d: no shared memory\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  Lockstep sync(memory, rank, ranks);
  // An MPI makes progress only inside its own calls, and a rank may leave a collective with some
  // of its sends still queued.
  sync.idle = [] {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  };
  if (arguments.errors_return) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MpiPeer peer;
  std::byte* arena = map_private(arena_bytes(arguments));
  if (arguments.fault_rank >= 0) run_fault(arguments, sync, peer, arena);
  const int status = Walk(arguments, sync, peer, arena).run();
  MPI_Finalize();
  return status;
}
