// Options of init(), of a communicator and of one call.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/types.h"

namespace unisono {

class Store;

/// A CUDA stream: CUstream or cudaStream_t, the same handle. Null is the default stream.
using CudaStream = void*;

struct InitOptions {
  /// Where the ranks meet:
  ///   "env://" (default): RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
  ///       MASTER_PORT as torchrun and `unisono run` set them, else what mpirun and srun set;
  ///       with none of them a world of one.
  ///   "tcp://host:port": rank 0 listens there; needs UNISONO_JOB_KEY (or job_key).
  ///   "file:///path": rank 0 writes the file, the others read it; a stale file does no harm.
  /// Empty: UNISONO_RENDEZVOUS, else "env://".
  std::string rendezvous{};
  /// Instead of `rendezvous`: a store of your own. Must outlive init().
  Store* store = nullptr;
  Rank rank = -1;         ///< -1: from RANK, or what mpirun and srun set
  int size = -1;          ///< -1: from WORLD_SIZE, likewise
  std::string job_key{};  ///< empty: UNISONO_JOB_KEY. Never logged.
  /// "auto", "shm", "tcp", "unix", "verbs" or "loopback"; the same on all ranks. Empty:
  /// UNISONO_TRANSPORT.
  std::string transport{};
  /// For rendezvous, and the default of every call. Zero: UNISONO_TIMEOUT (10 minutes).
  std::chrono::milliseconds timeout{0};
  /// The rank's GPU, counted among those that CUDA_VISIBLE_DEVICES leaves. -1: the one whose
  /// context is current on this thread, else the only one that this process uses already; with
  /// neither the rank counts as one without a GPU, whose device buffers go through host memory.
  /// With UNISONO_CUDA=require: LOCAL_RANK then.
  int device = -1;
  /// The least that every reduction of the job keeps; a call may ask for more. kCanonical and
  /// kExact make training reproducible: the same bits for any algorithm, transport, bucket and
  /// message size. The same on all ranks. kAny: UNISONO_ORDER.
  Order order = Order::kAny;
};

/// Of Communicator::grow(); the same on all ranks but for `key`.
struct GrowOptions {
  int at_least = 1;      ///< newcomers; with fewer nobody is let in
  int at_most = 65'536;  ///< newcomers; further ones go on waiting
  /// For `at_least` newcomers. Zero: those that wait already.
  std::chrono::milliseconds wait{0};
  /// The place of this rank: ranks of the grown communicator are ordered by key, those of one key
  /// members before newcomers, members as they are ordered now, newcomers as they have come.
  int key = 0;
  /// Until all have met, newcomers and members. Zero: 30 s, or the job's (InitOptions::timeout)
  /// where that is less.
  std::chrono::milliseconds timeout{0};
};

struct CallOptions {
  /// Zero: the communicator's default. When it passes, the communicator fails everywhere and the
  /// error lists who had arrived.
  std::chrono::milliseconds timeout{0};
  /// An algorithm of `unisono plan --list` ("ring", "native", ...), or "auto": selection decides;
  /// empty: UNISONO_ALGORITHM, or selection. The same on all ranks. Must outlive the call.
  std::string_view algorithm{};
  Order order = Order::kAny;
  /// For calls on device memory. The call's work runs in the order of the stream: after what is in
  /// it, and before what is put there later. The call returns, or makes its Request, once it has
  /// its place there, which may take until the other ranks have made the call but never until the
  /// work is done. A failure of the work shows in the communicator's status() and in its next call.
  /// Without a stream the work runs in the default stream, and the call returns with the result.
  std::optional<CudaStream> stream{};
};

}  // namespace unisono
