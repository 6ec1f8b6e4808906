// An RDMA network inside this process: hosts with devices that real verbs structures describe, one
// thread that carries out work requests late, in pieces and interleaved, and levers to make happen
// what no device does on demand. For tests: ranks are threads, each with the VerbsApi of its host.
// Any thread may call anything.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/verbs_api.h"

namespace unisono::verbs {

struct FakeGid {
  ibv_gid gid{};
  std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
};
/// ::ffff:a.b.c.d
ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d);

/// One device with one port. Limits are enforced.
struct FakeDeviceOptions {
  std::string name;  ///< empty: "fake0", "fake1", ... by place
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  bool down = false;
  ibv_mtu mtu = IBV_MTU_4096;
  std::uint32_t message_bytes_max = 1u << 30;
  int qp_entries_max = 16384;
  int cq_entries_max = 65536;
  int srq_entries_max = 32768;
  int rd_atomic_max = 16;
  int sges_max = 4;
  std::uint32_t inline_bytes_max = 512;
  bool refuses_sizes_silently = false;  ///< create_qp beyond a limit leaves errno alone
  std::vector<std::uint16_t> pkeys = {0xffff};
  /// Empty: link-local and IPv4 (10.<device>.<host>), each as RoCE v1 and then v2; of InfiniBand
  /// the port's own.
  std::vector<FakeGid> gids;
};

struct FakeFabricOptions {
  std::vector<std::vector<FakeDeviceOptions>> hosts;  ///< each with its devices
  std::uint64_t seed = 1;
  std::size_t piece_bytes_max = 64 * 1024;    ///< of a message, moved at once
  int late_turns_max = 4;                     ///< turns that others get before a posted request
  std::chrono::microseconds turn_delay{0};    ///< a true sleep in each turn; 0: none
  std::chrono::microseconds rnr_wait{200};    ///< between tries where the peer has no receive
  std::chrono::microseconds retry_wait{500};  ///< between tries where nobody answers
  /// What is still on a completion queue when its queue pair is destroyed: stays there (soft-RoCE)
  /// or vanishes (mlx5). In both cases receives that it used are used.
  bool forget_completions_of_destroyed = false;
  /// A new queue pair gets the number of the one that was destroyed last.
  bool reuse_numbers = false;
  /// Under the thread sanitizer: only the order that a device gives. False: the fake's own lock
  /// orders too, and the fake itself is checked.
  bool exact_order = true;
};
/// `hosts` alike, each with `devices` like `device`.
FakeFabricOptions fake_world(int hosts, int devices, const FakeDeviceOptions& device = {});

/// What a link does to a message although every check on the way passes.
struct FakeTampering {
  enum class How : std::uint8_t {
    kFlip,    ///< the lowest bit of the byte `at`
    kCut,     ///< what is from `at` on does not land, and all of it is said to have
    kRepeat,  ///< of two messages of one length the first lands in place of the second, too
  };
  How how = How::kFlip;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  std::uint64_t at = 0;
};

/// The functions of VerbsApi that can be made to fail.
enum class FakeCall {
  kGetDeviceList,
  kOpenDevice,
  kQueryDevice,
  kQueryPort,
  kQueryPkey,
  kQueryGidEx,
  kGetAsyncEvent,
  kAllocPd,
  kRegMr,
  kRegDmabufMr,
  kDeregMr,
  kCreateCq,
  kPollCq,
  kCreateSrq,
  kPostSrqRecv,
  kCreateQp,
  kModifyQp,
  kPostSend,
};

/// Of one host since its fabric was made.
struct FakeCounters {
  // Alive now.
  int device_lists = 0, contexts = 0, pds = 0, mrs = 0, cqs = 0, srqs = 0, qps = 0;
  int live() const { return device_lists + contexts + pds + mrs + cqs + srqs + qps; }
  std::size_t registered_bytes = 0;

  std::uint64_t registrations = 0;
  std::uint64_t signalled = 0;  ///< completions of work requests; with errors, all
  std::uint64_t received = 0;   ///< completions of receives
  std::uint64_t inlined = 0;    ///< work requests
  std::uint64_t rnr_waits = 0;  ///< of this host's requests, for a receive at the peer
  std::uint64_t overflows = 0;  ///< posts refused because the send queue was full
  static constexpr std::size_t kOpcodes = IBV_WR_RDMA_READ + 1;
  std::array<std::uint64_t, kOpcodes> posted{};  ///< by enum ibv_wr_opcode
  std::array<std::uint64_t, kOpcodes> bytes{};   ///< moved by requests that succeeded
};

namespace fake {
class Core;
}

class FakeFabric {
 public:
  explicit FakeFabric(FakeFabricOptions options);
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  /// One rank's view; may outlive the fabric.
  std::shared_ptr<VerbsApi> api(int host);

  /// The `nth` call from now on (1: the next) fails with that errno.
  void fail_call(int host, FakeCall call, int nth, int error_number);
  /// The `nth` call and all after it.
  void fail_calls_from(int host, FakeCall call, int nth, int error_number);
  /// The next work request that `device` begins ends so, and moves nothing.
  void fail_next_request(int host, int device, ibv_wc_status status);
  /// The next completion of a work request of `device` never reaches its queue.
  void lose_next_completion(int host, int device);
  /// Once, of the next message that `device` asks for with that opcode and that is longer than
  /// `at`.
  void tamper(int host, int device, const FakeTampering& how);
  /// Port state, event and traffic.
  void set_link(int host, int device, bool up);
  /// The event; from then on nothing is carried out, new objects are refused with EIO.
  void break_device(int host, int device);
  /// As if the rank's machine had lost its power; no event anywhere.
  void unplug(int host);
  /// No work request of this host moves or completes from the return on until release().
  void hold(int host);
  void release(int host);
  /// Until no queue pair has anything left to do but those held, broken or waiting for a receive.
  void wait_until_idle();
  /// The caller sees all that was written by then, as by a completion that came behind it.
  void see_what_was_written();

  FakeCounters counters(int host) const;
  /// Why calls were refused and peers found unreachable: the words that errno has no room for.
  std::vector<std::string> complaints() const;

 private:
  std::shared_ptr<fake::Core> core_;
};

}  // namespace unisono::verbs
