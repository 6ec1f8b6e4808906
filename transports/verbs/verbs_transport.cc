// Rails, completions and the side channel under one Transport; see verbs_transport.h.
#include <algorithm>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "transports/verbs/port_address.h"
#include "transports/verbs/verbs_transport_state.h"
#include "transports/verbs/world_address.h"

namespace unisono::verbs {
namespace {

// While all links stand, the side channel has news only of failures and goodbyes; looking costs
// system calls.
constexpr unsigned kPollsPerLookAside = 256;
// Rings are tried up to so many bytes when a transport is made: more would only take time.
constexpr std::size_t kTriedBytesMax = std::size_t{64} << 20;

std::string network_of(const Rail& rail) {
  const PortSurvey& port = rail.port();
  std::ostringstream text;
  if (is_infiniband(port.attributes)) {
    text << "ib";
  } else {
    text << (is_roce_v1(port) ? "rocev1" : "rocev2") << (is_ipv4(port.gid.raw) ? "-ipv4" : "-ipv6");
  }
  text << ":" << std::hex << (port.pkey & ~kFullMember & 0xffff);
  if ((port.pkey & kFullMember) == 0) text << kLimited;
  return text.str();
}

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

}  // namespace

VerbsTransport::VerbsTransport(VerbsOptions options, std::unique_ptr<Transport> side)
    : options_(std::move(options)), side_(std::move(side), *this) {}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::make(std::shared_ptr<VerbsApi> api,
                                                             VerbsOptions options,
                                                             std::unique_ptr<Transport> side,
                                                             std::shared_ptr<CmApi> cm) {
  UNISONO_TRY(check_options(options));
  std::unique_ptr<VerbsTransport> made(new VerbsTransport(std::move(options), std::move(side)));
  UNISONO_TRY(made->open_paths(std::move(cm)));
  UNISONO_TRY(made->open_rails(api));
  Result<std::unique_ptr<MemoryMonitor>> monitor = make_memory_monitor();
  if (!monitor) {
    log::info("buffers are registered anew for every operation: " + monitor.error().message());
  }
  made->cache_ = std::make_unique<RegistrationCache>(
      made->rails_, made->options_.registered_bytes_max,
      monitor ? std::move(*monitor) : std::unique_ptr<MemoryMonitor>());
  UNISONO_ASSIGN(made->staging_, Staging::make(made->rails_));
  UNISONO_TRY(made->try_rings());
  made->directory_ = std::make_unique<QueuePairDirectory>(made->rails_.size());
  int immediates = static_cast<int>(kWritesMax);
  for (const auto& rail : made->rails_) {
    immediates = std::min(immediates, rail->immediates_per_peer());
  }
  made->shared_.reset(new LinkResources{made->rails_, made->options_, *made->cache_,
                                        *made->staging_, made->counts_, immediates,
                                        made->paths_.get()});
  return made;
}

Status VerbsTransport::open_rails(const std::shared_ptr<VerbsApi>& api) {
  UNISONO_ASSIGN(const std::vector<PortSurvey> ports, survey_ports(*api, options_));
  std::string reasons;
  for (const PortSurvey& port : ports) {
    if (!port.shown.usable) {
      reasons += "; " + port.shown.device + " port " + std::to_string(port.port) + ": " +
                 port.shown.reason;
      continue;
    }
    if (rails_.size() == static_cast<std::size_t>(kRailsMax)) break;
    UNISONO_ASSIGN(std::unique_ptr<Rail> rail,
                   Rail::open(api, port, options_, std::max(1, options_.size - 1)));
    rails_.push_back(std::move(rail));
  }
  rail_failed_.assign(rails_.size(), false);
  if (!rails_.empty()) return Status();
  return Status(ErrorCode::kUnsupported, "no usable RDMA port" + reasons);
}

Status VerbsTransport::open_paths(std::shared_ptr<CmApi> cm) {
  if (options_.connect != VerbsConnect::kCm) return Status();
  if (cm == nullptr) {
    UNISONO_ASSIGN(cm, load_cm_library());
  }
  UNISONO_ASSIGN(paths_, PathResolver::make(std::move(cm)));
  return Status();
}

// Links register their rings when they are made, in the middle of the work; that the limit on
// locked memory is too low for them is better said here.
Status VerbsTransport::try_rings() const {
  const auto peers = static_cast<std::size_t>(std::max(1, options_.size - 1));
  const std::size_t bytes = std::min(kTriedBytesMax, 2 * options_.ring_bytes * peers);
  return RailMemory::make(rails_, bytes).status();
}

VerbsTransport::~VerbsTransport() = default;

std::string VerbsTransport::address() const {
  return world_address_text({networks(), side_.transport().address()});
}

std::vector<std::string> VerbsTransport::networks() const {
  std::vector<std::string> all;
  for (const auto& rail : rails_) all.push_back(network_of(*rail));
  return all;
}

void VerbsTransport::set_identity(const std::string& job_id, const JobKey& key) {
  side_.transport().set_identity(job_id, key);
}

Status VerbsTransport::set_peers(std::vector<std::string> addresses) {
  refusals_.assign(addresses.size(), "");
  links_.resize(addresses.size());
  gone_.resize(addresses.size());
  unheard_.resize(addresses.size());
  const std::vector<std::string> own = networks();
  int reached = 0;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].empty()) continue;
    Result<WorldAddress> peer = parse_world_address(addresses[rank]);
    if (!peer) {
      return Status(ErrorCode::kRendezvous,
                    "rank " + std::to_string(rank) + ": " + peer.error().message(),
                    static_cast<Rank>(rank));
    }
    if (!have_common(own, peer->networks)) refuse(static_cast<Rank>(rank), own, peer->networks);
    if (refusals_[rank].empty() && static_cast<Rank>(rank) != options_.rank) ++reached;
    addresses[rank] = std::move(peer->side);
  }
  log::info("rank " + std::to_string(options_.rank) + " reaches " + std::to_string(reached) +
            " ranks over RDMA by " + ports_text());
  return side_.transport().set_peers(std::move(addresses));
}

std::string VerbsTransport::ports_text() const {
  std::string text;
  for (const auto& rail : rails_) {
    const VerbsPort& port = rail->port().shown;
    text += (text.empty() ? "" : ", ") + rail->name() + " (" + port.gid_type + ", GID " + port.gid +
            ", MTU " + std::to_string(port.mtu_bytes) + ")";
  }
  return text;
}

// A job may well have hosts without verbs; that ports do not fit each other is seldom meant.
void VerbsTransport::refuse(Rank peer, const std::vector<std::string>& own,
                            const std::vector<std::string>& theirs) {
  std::string& reason = refusals_[static_cast<std::size_t>(peer)];
  const std::string who = "rank " + std::to_string(peer) + " is reached over TCP: ";
  if (theirs.empty()) {
    reason = "it has no usable verbs";
    log::info(who + reason);
    return;
  }
  reason = "its ports (" + list(theirs) + ") and this rank's (" + list(own) +
           ") have no kind of network and partition in common";
  log::warning(who + reason);
}

Link& VerbsTransport::link_to(Rank peer) {
  std::unique_ptr<Link>& link = links_[static_cast<std::size_t>(peer)];
  if (link == nullptr) {
    const auto make = carries_frames(peer) ? &Link::make_stream : &Link::make;
    std::unique_ptr<Link> made = make(options_.rank, peer, *shared_, *directory_, side_);
    const std::optional<Status>& gone = gone_[static_cast<std::size_t>(peer)];
    if (gone) made->side_closed(*gone);
    active_.push_back(made.get());
    link = std::move(made);
  }
  return *link;
}

Endpoint& VerbsTransport::endpoint(Rank peer) {
  Link& link = link_to(peer);
  if (!closed_) link.wanted();
  return link;
}

Status VerbsTransport::admits_direct(Rank peer, std::size_t bytes) const {
  if (carries_frames(peer)) {
    return Status(ErrorCode::kUnsupported,
                  "rank " + std::to_string(peer) + " is reached over TCP, without verbs");
  }
  if (options_.checksum) {
    return Status(
        ErrorCode::kUnsupported,
        "with UNISONO_CHECKSUM=on the host reads what is sent and what has come, which it "
        "cannot in a device's memory");
  }
  return cache_->admits_device(bytes);
}

Status VerbsTransport::pin(std::span<const std::byte> memory) {
  UNISONO_ASSIGN(Registration* const held, cache_->acquire(memory, memory));
  pinned_.emplace(memory.data(), held);
  return Status();
}

void VerbsTransport::unpin(std::span<const std::byte> memory) {
  const auto held = pinned_.find(memory.data());
  if (held == pinned_.end()) return;
  cache_->release(held->second);
  pinned_.erase(held);
}

bool VerbsTransport::poll(FrameSink& sink) {
  if (closed_) return false;
  bool moved = poll_completions();
  const auto is_broken = [](const Link* link) { return link->is_broken(); };
  if (std::any_of(active_.begin(), active_.end(), is_broken)) {
    // Why queue pairs broke is perhaps on its way: the peer made them anew, or has left.
    side_.poll(sink);
    handle_rails();
    for_each_active([](Link& link) { link.handle_broken(); });
  }
  if (paths_ != nullptr) moved |= paths_->poll();
  bool wait_for_side = false;
  for_each_active([&](Link& link) {
    moved |= link.progress(sink);
    wait_for_side |= link.needs_side_channel();
  });
  const bool looks_aside = ++polls_ % kPollsPerLookAside == 0;
  if (wait_for_side || looks_aside || side_.has_messages()) moved |= side_.poll(sink);
  // What peers have said comes first, as above.
  if (looks_aside) handle_rails();
  if (has_unheard_) end_unheard();
  if (std::exchange(lacks_memory_, false)) throw std::bad_alloc();
  return moved;
}

template <typename Work>
void VerbsTransport::or_note(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    lacks_memory_ = true;
  }
}

// One that lacks memory keeps no other from its turn.
template <typename Work>
void VerbsTransport::for_each_active(const Work& work) {
  for (std::size_t i = 0; i < active_.size(); ++i) {
    or_note([&] { work(*active_[i]); });
  }
}

// Makes each of them a link, once there is memory for one, and ends it for both ranks.
void VerbsTransport::end_unheard() {
  has_unheard_ = false;
  for (std::size_t peer = 0; peer < unheard_.size(); ++peer) {
    if (!unheard_[peer]) continue;
    or_note([&] {
      link_to(static_cast<Rank>(peer)).no_memory();
      unheard_[peer] = false;
    });
    has_unheard_ |= unheard_[peer];
  }
}

bool VerbsTransport::poll_completions() {
  bool any = false;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    any |= rails_[rail]->poll([&](const ibv_wc& completion) { take(rail, completion); });
  }
  return any;
}

// Throws nothing: the completions behind one may be other links'.
void VerbsTransport::take(std::size_t rail, const ibv_wc& completion) {
  const QueuePairDirectory::Entry entry = directory_->find(rail, completion.qp_num);
  if (entry.link == nullptr) return;
  if (completion.status != IBV_WC_SUCCESS) {
    entry.link->broken(*entry.queue_pair, completion.status);
  } else if (completion.wr_id == kReceiveId) {
    const bool is_write = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    entry.link->immediate(is_write ? std::optional(be32toh(completion.imm_data)) : std::nullopt);
  } else {
    entry.queue_pair->complete(completion.wr_id);
  }
}

void VerbsTransport::handle_rails() {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    or_note([&] {
      const bool failed = rails_[rail]->has_failed();
      if (failed && !rail_failed_[rail]) {
        for (std::size_t i = 0; i < active_.size(); ++i) active_[i]->rail_failed(rail);
      }
      rail_failed_[rail] = failed;
    });
  }
}

bool VerbsTransport::has_unsent() const {
  return side_.has_unsent() || std::any_of(active_.begin(), active_.end(),
                                           [](const Link* link) { return link->has_unsent(); });
}

void VerbsTransport::give_up(Rank peer, FrameSink& sink) {
  if (closed_) return;
  Link* const link = links_[static_cast<std::size_t>(peer)].get();
  if (link != nullptr) link->drop(sink);
  side_.give_up(peer, sink);
}

void VerbsTransport::close(TimePoint deadline, FrameSink& sink) {
  if (closed_) return;
  const auto settled = [&] {
    return std::all_of(active_.begin(), active_.end(),
                       [](Link* link) { return link->is_settled(); });
  };
  while (!settled() && Clock::now() < deadline) {
    if (!poll(sink)) std::this_thread::yield();
  }
  for (Link* link : active_) link->leave();
  closed_ = true;
  // The sink may ask for endpoints meanwhile.
  for (std::size_t i = 0; i < active_.size(); ++i) active_[i]->drop(sink);
  // Frames and words of this rank first, its goodbye behind them.
  while (side_.has_unsent() && Clock::now() < deadline) {
    if (!side_.poll(sink)) std::this_thread::yield();
  }
  side_.close(deadline, sink);
}

bool VerbsTransport::carries_frames(Rank peer) const {
  return !refusals_[static_cast<std::size_t>(peer)].empty();
}

void VerbsTransport::message(Rank peer, std::string_view bytes) {
  if (!closed_) link_to(peer).message(bytes);
}

void VerbsTransport::side_closed(Rank peer, const Status& cause) {
  if (closed_) return;
  // Without a link the engine has nothing to do with this peer, so far.
  std::optional<Status>& gone = gone_[static_cast<std::size_t>(peer)];
  if (!gone) gone = cause;
  if (links_[static_cast<std::size_t>(peer)] != nullptr) link_to(peer).side_closed(cause);
}

void VerbsTransport::stray_frame(Rank peer) {
  if (closed_) return;
  link_to(peer).side_closed(
      Status(ErrorCode::kProtocol,
             "rank " + std::to_string(peer) + " sent a frame beside its queue pairs", peer));
}

void VerbsTransport::no_memory(Rank peer) {
  if (closed_) return;
  Link* const link = links_[static_cast<std::size_t>(peer)].get();
  if (link != nullptr) return link->no_memory();
  unheard_[static_cast<std::size_t>(peer)] = has_unheard_ = true;
}

}  // namespace unisono::verbs

namespace unisono {

Result<std::unique_ptr<Transport>> make_verbs_transport(VerbsOptions options,
                                                        std::unique_ptr<Transport> side) {
  UNISONO_ASSIGN(std::shared_ptr<verbs::VerbsApi> api, verbs::load_verbs_library());
  UNISONO_ASSIGN(std::unique_ptr<verbs::VerbsTransport> made,
                 verbs::VerbsTransport::make(std::move(api), std::move(options), std::move(side)));
  return std::unique_ptr<Transport>(std::move(made));
}

}  // namespace unisono
