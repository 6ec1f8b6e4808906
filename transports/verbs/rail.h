// A rail: one usable port of one device with what all its queue pairs share (context, protection
// domain, completion queue, shared receive queue). Rails are chosen once, when the transport is
// made; losing one later is a link's business. Owned by VerbsTransport, used by its thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transports/verbs/record.h"
#include "transports/verbs/verbs_api.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono::verbs {

/// Receives a rail keeps for each peer beyond immediates_per_peer(): a peer's acknowledgements
/// (consumed, read) take one each and need no credit.
inline constexpr int kAcknowledgementsPerPeer = 32;
/// Work requests of one queue pair that the completion queue has room for, where the device allows.
inline constexpr int kSendsPerQueuePair = 64;
/// wr_id of every receive, so that a failed completion (its opcode is void) tells its kind.
inline constexpr std::uint64_t kReceiveId = ~std::uint64_t{0};

/// What is known of a port before it is opened for good.
struct PortSurvey {
  VerbsPort shown;  ///< for people
  std::uint8_t port = 1;
  ibv_port_attr attributes{};
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
  std::uint16_t pkey = 0;
  std::uint16_t pkey_index = 0;
  int rd_atomic_max = 1;          ///< RDMA reads in flight, as initiator and as responder
  std::size_t message_bytes = 0;  ///< the smaller of the port's max_msg_sz and the option
  int cq_entries_max = 0;
  int srq_entries_max = 0;
  int qp_entries_max = 0;
};

/// Every port of every device, usable or not and why. The GID is chosen by type and address: for
/// "auto" RoCE v2 with an IPv4 address, then RoCE v2 global IPv6, then RoCE v1; InfiniBand's first
/// global one. Link-local and loopback addresses only where there is nothing else. Errors as
/// list_verbs_ports; kInvalidArgument for a device that is not there, with those that are.
Result<std::vector<PortSurvey>> survey_ports(VerbsApi& api, const VerbsOptions& options);

/// Looks a surveyed port up again after it came back or changed: state, LID, and under which
/// numbers its GID and partition are now. An error says what is gone and leaves `port` as it was.
Status refresh_port(VerbsApi& api, ibv_context* context, PortSurvey* port);

/// Why libibverbs finds no device: what is missing in /sys and /dev, and the remedy. `root` comes
/// before both paths: "", but in tests a folder made up like a machine that lacks something.
std::string why_no_device(const std::string& root);

/// kInvalidArgument names the option, its value and what is accepted.
Status check_options(const VerbsOptions& options);

class Rail {
 public:
  /// `peers`: links this rail may have at once, for the sizes of its queues.
  static Result<std::unique_ptr<Rail>> open(std::shared_ptr<VerbsApi> api, const PortSurvey& port,
                                            const VerbsOptions& options, int peers);
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  VerbsApi& api() const { return *api_; }
  const PortSurvey& port() const { return port_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  ibv_srq* srq() const { return srq_; }
  /// "mlx5_0 port 1"
  const std::string& name() const { return name_; }
  /// IBV_ACCESS_LOCAL_WRITE and what else every registration of this rail may have.
  int access() const { return access_; }
  /// Writes with immediate that one peer may have in flight before this rank polls: 16 to 256. With
  /// very many peers these together may exceed the receives there are; then the senders' RNR
  /// retries stand in.
  int immediates_per_peer() const { return immediates_per_peer_; }
  /// Work requests that one queue pair may have outstanding, signalled or not (all of them complete
  /// when it fails): at most kSendsPerQueuePair, less where the device's queues are short.
  int sends_per_queue_pair() const { return sends_per_queue_pair_; }

  /// Hands over all completions that there are by now, those that were collected first, and gives
  /// back the receives that they used up. False: there were none. `take` throws nothing.
  template <typename Take>
  bool poll(const Take& take) {
    collect();
    if (collected_.empty()) return false;
    int receives = 0;
    // What it closes is collected meanwhile.
    for (std::size_t each = 0; each < collected_.size(); ++each) {
      const ibv_wc completion = collected_[each];
      receives += completion.wr_id == kReceiveId;
      take(completion);
    }
    collected_.clear();
    give_back(receives);
    return true;
  }
  /// Takes all there are off the completion queue and keeps them for poll(). Takes no memory.
  void collect();
  /// Those kept are nobody's from now on: the queue pair is gone, and its number may come again.
  void disown(std::uint32_t queue_pair);
  /// Gives back receives that completions have used up: `count` of them.
  Status replenish(int count);
  /// True from a fatal event on: port down, device fatal, a shared queue in error. A port that
  /// comes back is no longer failed (queue pairs made before stay lost); the others last. Looks at
  /// the event queue without waiting; costs a system call. An event that memory lacks for is kept
  /// for the next look.
  bool has_failed();
  /// It will not come back, and its device refuses everything.
  bool is_lost() const { return fails_for_good_; }
  /// Why, once has_failed(). Empty otherwise.
  const std::string& failure() const { return failure_; }

 private:
  Rail(std::shared_ptr<VerbsApi> api, const PortSurvey& port);
  Status open_context();
  Status choose_access(bool relaxed_ordering);
  Status make_queues(int peers, int queue_pairs);
  void give_back(int receives);
  bool take_event();
  void handle(const ibv_async_event& event);
  void look_again(const std::string& event);

  std::shared_ptr<VerbsApi> api_;
  PortSurvey port_;
  std::string name_;
  std::string failure_;
  bool fails_for_good_ = false;
  std::optional<ibv_async_event> event_;  ///< acknowledged and not handled yet
  std::uint64_t logged_events_ = 0;       ///< one bit per type
  int access_ = 0;
  int immediates_per_peer_ = 0;
  int sends_per_queue_pair_ = 0;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_wc> collected_;
};

/// errno of a failed ibv_open_device. The library reports ENOENT whatever was wrong with the node
/// in /dev/infiniband (after its own second attempt), so the node itself is asked.
int open_error(const ibv_device& device, int reported);

/// "mlx5_0 port 1", as every message calls it.
std::string port_name(const VerbsPort& port);
/// errno of a verbs call that returned `result`: most return it, some -1 and set it.
int error_of(int result);

/// "RETRY_EXC_ERR (12): transport retry counter exceeded", for messages; the remedy where one is
/// known (peer dead, cable, memlock, PFC).
std::string describe(ibv_wc_status status);
std::string describe(const ibv_async_event& event);
bool names_queue_pair(const ibv_async_event& event);
/// "No route to host, errno 113".
std::string describe_errno(int error_number);
/// A failed registration or creation: the call, errno's words, for ENOMEM the memlock limit in
/// force and how to raise it. `rail` may be empty where the reader knows which.
Status call_failed(std::string_view call, const std::string& rail, int error_number,
                   std::size_t bytes = 0);

}  // namespace unisono::verbs
