// What the ranks of a job know of each other: what each tells about itself, the table of all that
// they get, and where they meet for it; and the job's word on a failure.
//
// Thread rule: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/communicator_id.h"
#include "base/handshake.h"
#include "base/result.h"
#include "unisono/rendezvous.h"
#include "unisono/types.h"

namespace unisono {

/// What every rank tells about itself when it joins.
struct Member {
  Rank rank = 0;
  std::string host;       ///< identity: equal exactly when memory can be shared
  std::string host_name;  ///< for messages
  std::uint64_t network_namespace = 0;
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  std::string settings;   ///< values all ranks must agree on (transport, ...); compared as text
  std::string addresses;  ///< opaque to the arbiter; at most 4 KiB
  std::uint64_t pid_namespace = 0;  ///< of `pid`; 0: not to be seen
  bool is_newcomer = false;         ///< to those that grow: where settings differ, its are wrong
};

struct World {
  Rank rank = 0;
  int size = 1;
  std::string job_id;           ///< random, the same on all ranks
  JobKey key;                   ///< for data connections; the same on all ranks
  std::vector<Member> members;  ///< by rank
};

/// The job's word on a failure. `failed_rank` is a world rank or -1.
struct FailureDecision {
  ErrorCode code = ErrorCode::kRankFailed;
  Rank failed_rank = -1;
  /// kEveryCommunicator: all communicators that contain `failed_rank`.
  std::uint32_t communicator = kEveryCommunicator;
  std::uint64_t sequence = 0;
  /// Of all communicators it counts the job's ranks, of one that one's, or says whose
  /// (with_ranks_of_job()).
  std::string message;
};

/// Where and how to meet. Made from UNISONO_*/torchrun variables or from a URL
/// (rendezvous_point.h).
struct RendezvousPoint {
  enum class Kind : std::uint8_t {
    kAlone,     ///< a world of one rank
    kAbstract,  ///< single host: abstract UNIX socket of a name all ranks can compute
    kTcp,       ///< host:port, needs the key
    kFile,      ///< a file that rank 0 (re)writes atomically with address and job id, mode 0600
    kStore,     ///< a user's Store
    kUniqueId,  ///< the sockets of a unique id, which has the key
  };
  Kind kind = Kind::kAlone;
  /// Abstract name, host, path, or the job of `id`; kStore: among others in it, or empty.
  std::string name;
  std::uint16_t port = 0;  ///< kTcp
  bool has_key =
      false;  ///< kFile, kStore: every rank proves it; else rank 0 publishes a random one
  JobKey key;
  Store* store = nullptr;  ///< kStore; outlives join()
  UniqueId id;             ///< kUniqueId
  /// UNISONO_INTERFACE: rank 0 listens there alone over TCP and publishes nothing else, unless
  /// `name` is a numeric address of its own. Empty: every interface.
  std::string interface_address;
  /// UNISONO_SILENCE: rank and arbiter each take the other for lost that says nothing for so long.
  /// 0: never.
  std::chrono::milliseconds silence{0};
  /// UNISONO_WARN_AFTER: so long after join() began rank 0 logs once who has not arrived, and a
  /// rank that does not reach rank 0 says so. 0: never.
  std::chrono::milliseconds warn_after{0};
  /// Asked now and then while this rank waits for the others; its error ends the wait. Empty:
  /// nobody is.
  std::function<Status()> go_on{};
  bool within_process = false;  ///< kAbstract: all ranks are threads of this process
  int local_rank = -1;       ///< this rank's on its host, as the launcher has said; -1: it has not
  int local_size = 0;        ///< the ranks of this host, likewise; 0: not known
  bool single_host = false;  ///< kFile, kStore: nobody comes over TCP, so nothing listens there
  /// A rank that goes away before all have met does not come again: nobody starts it anew.
  bool comes_once = false;
  bool is_newcomer = false;  ///< as Member::is_newcomer
};

}  // namespace unisono
