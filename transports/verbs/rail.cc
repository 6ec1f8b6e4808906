// Opens a port with the queues that all its queue pairs share, and watches it. See rail.h.
#include "transports/verbs/rail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace unisono::verbs {
namespace {

constexpr int kImmediatesPerPeerMin = 16;
constexpr int kImmediatesPerPeerMax = 256;
constexpr int kSendsMin = 4;
constexpr int kEventsAtOnce = 256;
// Longer than the 24 bits of any number.
constexpr std::uint32_t kNobody = ~0u;

struct QueueSizes {
  long long receives = 0;  ///< entries of the shared receive queue
  long long sends = 0;     ///< of each queue pair, in the completion queue
  long long entries = 0;   ///< of the completion queue
  int immediates = 0;      ///< per peer
};

/// The completion queue must never overrun (that is fatal to all queue pairs at once), so it has
/// room for every receive that is posted and every send that may be. Where the device allows too
/// few entries the receives give way down to half of them, then the sends.
Result<QueueSizes> size_queues(const PortSurvey& port, int peers, int queue_pairs) {
  const long long ends = static_cast<long long>(peers) * queue_pairs;
  const long long entries_max = port.cq_entries_max;
  QueueSizes sizes;
  sizes.sends = std::min(kSendsPerQueuePair, port.qp_entries_max);
  sizes.receives = std::min<long long>(
      static_cast<long long>(peers) * (kImmediatesPerPeerMax + kAcknowledgementsPerPeer),
      port.srq_entries_max);
  sizes.receives =
      std::min(sizes.receives, std::max(entries_max - ends * sizes.sends, entries_max / 2));
  sizes.sends = std::min(sizes.sends, (entries_max - sizes.receives) / ends);
  if (sizes.sends < kSendsMin ||
      sizes.receives < kImmediatesPerPeerMin + kAcknowledgementsPerPeer) {
    return Status(ErrorCode::kOutOfResources,
                  port_name(port.shown) + ": " + std::to_string(peers) + " peers with " +
                      std::to_string(queue_pairs) +
                      " queue pairs each do not fit the device's queues (max_cqe " +
                      std::to_string(port.cq_entries_max) + ", max_srq_wr " +
                      std::to_string(port.srq_entries_max) + ", max_qp_wr " +
                      std::to_string(port.qp_entries_max) + "); use fewer queue pairs or ranks");
  }
  sizes.entries = sizes.receives + ends * sizes.sends;
  sizes.immediates =
      static_cast<int>(std::clamp<long long>(sizes.receives / peers - kAcknowledgementsPerPeer,
                                             kImmediatesPerPeerMin, kImmediatesPerPeerMax));
  return sizes;
}

void log_failed_release(int result, const char* call, const std::string& rail) {
  if (result == 0) return;
  log::warning("verbs: " + call_failed(call, rail, error_of(result)).message());
}

}  // namespace

Rail::Rail(std::shared_ptr<VerbsApi> api, const PortSurvey& port)
    : api_(std::move(api)), port_(port), name_(port_name(port.shown)) {}

Rail::~Rail() {
  if (srq_) log_failed_release(api_->destroy_srq(srq_), "ibv_destroy_srq", name_);
  if (cq_) log_failed_release(api_->destroy_cq(cq_), "ibv_destroy_cq", name_);
  if (pd_) log_failed_release(api_->dealloc_pd(pd_), "ibv_dealloc_pd", name_);
  if (context_) log_failed_release(api_->close_device(context_), "ibv_close_device", name_);
}

Result<std::unique_ptr<Rail>> Rail::open(std::shared_ptr<VerbsApi> api, const PortSurvey& port,
                                         const VerbsOptions& options, int peers) {
  std::unique_ptr<Rail> rail(new Rail(std::move(api), port));
  if (!port.shown.usable) {
    return Status(ErrorCode::kUnsupported, rail->name_ + ": " + port.shown.reason);
  }
  UNISONO_TRY(rail->open_context());
  errno = 0;
  rail->pd_ = rail->api_->alloc_pd(rail->context_);
  if (rail->pd_ == nullptr) return call_failed("ibv_alloc_pd", rail->name_, error_of(-1));
  UNISONO_TRY(rail->choose_access(options.relaxed_ordering));
  UNISONO_TRY(rail->make_queues(std::max(peers, 1), std::max(options.queue_pairs, 1)));
  return rail;
}

Status Rail::open_context() {
  errno = 0;
  int count = 0;
  ibv_device** list = api_->get_device_list(&count);
  if (list == nullptr) return call_failed("ibv_get_device_list", name_, error_of(-1));
  bool found = false;
  int error = 0;
  for (int index = 0; index < count && !found; ++index) {
    const char* name = api_->get_device_name(list[index]);
    if (name == nullptr || port_.shown.device != name) continue;
    found = true;
    errno = 0;
    context_ = api_->open_device(list[index]);
    if (context_ == nullptr) error = open_error(*list[index], error_of(-1));
  }
  api_->free_device_list(list);
  if (!found) return Status(ErrorCode::kUnsupported, name_ + ": the device has gone");
  if (context_ == nullptr) return call_failed("ibv_open_device", name_, error);
  // has_failed() asks while messages fly and must never wait.
  const int flags = fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return call_failed("fcntl on its event queue", name_, errno);
  }
  return {};
}

/// One small registration shows what the device accepts, and whether memory can be locked at all.
/// It is of a whole page of the system's: a child that is forked meanwhile does not have it.
Status Rail::choose_access(bool relaxed_ordering) {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(bytes, bytes),
                                                         &std::free);
  const auto registers = [&](int access) {
    errno = 0;
    ibv_mr* region = api_->reg_mr(pd_, page.get(), bytes, access);
    if (region == nullptr) return false;
    log_failed_release(api_->dereg_mr(region), "ibv_dereg_mr", name_);
    access_ = access;
    return true;
  };
  constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  if (relaxed_ordering && registers(kPlain | IBV_ACCESS_RELAXED_ORDERING)) return {};
  if (registers(kPlain)) return {};
  return call_failed("ibv_reg_mr", name_, error_of(-1), bytes);
}

Status Rail::make_queues(int peers, int queue_pairs) {
  UNISONO_ASSIGN(const QueueSizes sizes, size_queues(port_, peers, queue_pairs));
  errno = 0;
  cq_ = api_->create_cq(context_, static_cast<int>(sizes.entries));
  if (cq_ == nullptr) return call_failed("ibv_create_cq", name_, error_of(-1));
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = static_cast<std::uint32_t>(sizes.receives);
  attributes.attr.max_sge = 1;  // not used, but some providers refuse none
  errno = 0;
  srq_ = api_->create_srq(pd_, &attributes);
  if (srq_ == nullptr) return call_failed("ibv_create_srq", name_, error_of(-1));
  // Only poll() hands over those kept and gives back their receives, and only then more is sent.
  collected_.reserve(static_cast<std::size_t>(sizes.entries));
  immediates_per_peer_ = sizes.immediates;
  sends_per_queue_pair_ = static_cast<int>(sizes.sends);
  return replenish(static_cast<int>(sizes.receives));
}

// It ends, since no receive is posted meanwhile.
void Rail::collect() {
  std::array<ibv_wc, 32> completions;
  constexpr int kAtOnce = completions.size();
  int found = 0;
  do {
    found = api_->poll_cq(cq_, kAtOnce, completions.data());
    if (found <= 0) return;
    collected_.insert(collected_.end(), completions.begin(), completions.begin() + found);
  } while (found == kAtOnce);
}

void Rail::disown(std::uint32_t queue_pair) {
  for (ibv_wc& each : collected_) {
    if (each.qp_num == queue_pair) each.qp_num = kNobody;
  }
}

void Rail::give_back(int receives) {
  const Status replenished = replenish(receives);
  if (!replenished) log::warning(replenished.message());
}

Status Rail::replenish(int count) {
  std::array<ibv_recv_wr, 64> receives;
  while (count > 0) {
    const int chain = std::min<int>(count, receives.size());
    for (int index = 0; index < chain; ++index) {
      // There is no place for data: immediates alone arrive here.
      receives[index] = ibv_recv_wr{};
      receives[index].wr_id = kReceiveId;
      receives[index].next = index + 1 < chain ? &receives[index + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    errno = 0;
    if (const int error = error_of(api_->post_srq_recv(srq_, receives.data(), &bad))) {
      return call_failed("ibv_post_srq_recv", name_, error);
    }
    count -= chain;
  }
  return {};
}

bool Rail::has_failed() {
  // Bounded, so that a device that never stops reporting does not stop the caller.
  for (int seen = 0; seen < kEventsAtOnce; ++seen) {
    if (!event_ && !take_event()) break;
    try {
      handle(*event_);
    } catch (const std::bad_alloc&) {
      // Its queue pair may be gone when the next look has memory for it.
      if (names_queue_pair(*event_)) event_->element.qp = nullptr;
      throw;
    }
    event_.reset();
  }
  return !failure_.empty();
}

bool Rail::take_event() {
  ibv_async_event event{};
  if (api_->get_async_event(context_, &event) != 0) return false;
  // The destruction of what it names would wait for that for ever, and words may lack memory.
  api_->ack_async_event(&event);
  event_ = event;
  return true;
}

void Rail::handle(const ibv_async_event& event) {
  const std::string words = describe(event);
  const auto is_here = [&] { return event.element.port_num == port_.port; };
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      if (!fails_for_good_) failure_ = name_ + ": " + words;
      fails_for_good_ = true;
      return;
    case IBV_EVENT_PORT_ERR:
      if (is_here() && failure_.empty()) failure_ = name_ + ": " + words;
      if (is_here()) return;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
      if (is_here()) look_again(words);
      break;
    default:
      break;
  }
  const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(event.event_type) % 64);
  if ((logged_events_ & bit) == 0) log::debug("verbs: " + name_ + ": " + words);
  logged_events_ |= bit;
}

/// The numbers of GID, partition and LID may be others now, and new queue pairs need them. A port
/// that came back before its address did stays failed until that is announced, too.
void Rail::look_again(const std::string& event) {
  const Status status = refresh_port(*api_, context_, &port_);
  if (fails_for_good_) return;
  if (status.ok()) {
    failure_.clear();
  } else if (!failure_.empty()) {
    failure_ = name_ + ": " + event + ", but " + status.message();
  }
}

}  // namespace unisono::verbs
