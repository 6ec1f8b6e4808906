// See path_resolver.h. A question has two steps: which device and neighbour belong to the two
// addresses (on InfiniBand that is the GIDs themselves), and which route there is between them.
#include "transports/verbs/path_resolver.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "transports/verbs/port_address.h"

namespace unisono::verbs {
namespace {

constexpr int kEventsAtOnce = 256;
// The traffic class lies above the flow label in the flow information.
constexpr int kTrafficClassShift = 20;

using Gid = std::array<std::uint8_t, 16>;

union SocketAddress {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
  sockaddr_ib infiniband;
};

Gid bytes_of(const ibv_gid& gid) {
  Gid bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return bytes;
}

std::string text_of(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, gid.data(), text.data(), text.size()) ? text.data() : "?";
}

/// A RoCE GID is an address of IP, and rdma_cm asks for that; on InfiniBand it takes the GID, and
/// no IP over InfiniBand is needed.
SocketAddress address_of(const Gid& bytes, const PortSurvey& port, int traffic_class) {
  ibv_gid gid;
  std::memcpy(gid.raw, bytes.data(), bytes.size());
  SocketAddress address{};
  if (is_infiniband(port.attributes)) {
    address.infiniband.sib_family = AF_IB;
    address.infiniband.sib_pkey = htons(port.pkey);
    address.infiniband.sib_flowinfo =
        htonl(static_cast<std::uint32_t>(traffic_class) << kTrafficClassShift);
    std::memcpy(address.infiniband.sib_addr.sib_raw, gid.raw, sizeof(gid.raw));
  } else if (is_ipv4(gid.raw)) {
    address.ipv4.sin_family = AF_INET;
    std::memcpy(&address.ipv4.sin_addr, gid.raw + 12, 4);
  } else {
    address.ipv6.sin6_family = AF_INET6;
    std::memcpy(&address.ipv6.sin6_addr, gid.raw, sizeof(gid.raw));
  }
  return address;
}

bool is_link_local(const ibv_gid& gid) { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }

}  // namespace

PathQuery::PathQuery(PathResolver& resolver, const Rail& rail, const QueuePairEnd& peer,
                     const VerbsOptions& options)
    : resolver_(resolver),
      rail_(&rail),
      peer_(peer),
      options_(options),
      until_(Clock::now() + resolver.patience_) {}

Status PathQuery::begin() {
  const PortSurvey& port = rail_->port();
  if (!is_infiniband(port.attributes) && is_link_local(port.gid)) {
    return Status(ErrorCode::kUnsupported, rail_->name() +
                                               ": rdma_cm finds no path from its link-local GID " +
                                               port.shown.gid +
                                               ": give the network interface an address, or set "
                                               "UNISONO_VERBS_CONNECT=exchange");
  }
  CmApi& api = *resolver_.api_;
  errno = 0;
  // No connection is made; the port space only has to exist.
  if (const int error = error_of(api.create_id(resolver_.channel_, &id_, this, RDMA_PS_TCP))) {
    id_ = nullptr;
    return failed("rdma_create_id", error);
  }
  if (options_.traffic_class != 0 && !is_infiniband(port.attributes)) {
    auto traffic_class = static_cast<std::uint8_t>(options_.traffic_class);
    errno = 0;
    if (const int error = error_of(api.set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
                                                  &traffic_class, sizeof(traffic_class)))) {
      return failed("rdma_set_option (traffic class)", error);
    }
  }
  return ask_address();
}

Status PathQuery::ask_address() {
  const PortSurvey& port = rail_->port();
  SocketAddress source = address_of(bytes_of(port.gid), port, options_.traffic_class);
  SocketAddress target = address_of(peer_.gid, port, options_.traffic_class);
  errno = 0;
  const int error =
      error_of(resolver_.api_->resolve_addr(id_, &source.any, &target.any, kPathTryMilliseconds));
  return error == 0 ? Status() : failed("rdma_resolve_addr", error);
}

Status PathQuery::ask_route() {
  errno = 0;
  const int error = error_of(resolver_.api_->resolve_route(id_, kPathTryMilliseconds));
  return error == 0 ? Status() : failed("rdma_resolve_route", error);
}

void PathQuery::take(const Event& event) {
  event_ = event;
  take_event();
}

void PathQuery::take_event() {
  if (is_done() || !event_) return;
  const auto [event, status] = *event_;
  const bool answers_address =
      event == RDMA_CM_EVENT_ADDR_RESOLVED || event == RDMA_CM_EVENT_ADDR_ERROR;
  const bool answers_route =
      event == RDMA_CM_EVENT_ROUTE_RESOLVED || event == RDMA_CM_EVENT_ROUTE_ERROR;
  const bool expected = step_ == Step::kAddress ? answers_address : answers_route;
  const bool resolved =
      event == RDMA_CM_EVENT_ADDR_RESOLVED || event == RDMA_CM_EVENT_ROUTE_RESOLVED;
  Status next;
  if (!expected) {
    // A device that goes says so here, too.
    next = failed(resolver_.api_->event_str(event), -status);
  } else if (!resolved && status == -ETIMEDOUT && Clock::now() < until_) {
    next = step_ == Step::kAddress ? ask_address() : ask_route();
  } else if (!resolved || status != 0) {
    next = failed(resolver_.api_->event_str(event), -status);
  } else if (step_ == Step::kRoute) {
    return finish(read_record());
  } else {
    next = check_port();
    if (next) next = ask_route();
    step_ = Step::kRoute;
  }
  if (!next) finish(std::move(next));
  event_.reset();
}

/// Where two ports have one address the kernel chooses, and a queue pair cannot follow it.
Status PathQuery::check_port() const {
  const char* device =
      id_->verbs != nullptr && id_->verbs->device != nullptr ? id_->verbs->device->name : "";
  const PortSurvey& port = rail_->port();
  if (port.shown.device == device && id_->port_num == port.port) return {};
  return Status(ErrorCode::kUnsupported,
                rail_->name() + ": rdma_cm takes its address " + port.shown.gid + " for that of " +
                    (*device != '\0' ? device : "no device") + " port " +
                    std::to_string(id_->port_num) +
                    ": give each port an address of its own, in a network of its own");
}

Result<Path> PathQuery::read_record() const {
  if (id_->route.num_paths < 1 || id_->route.path_rec == nullptr) {
    return failed("a route without a path", 0);
  }
  Path path = recorded_path(rail_->port(), peer_, options_, *id_->route.path_rec);
  log::debug("verbs: " + rail_->name() + ": the path to " + text_of(peer_.gid) +
             " by rdma_cm: MTU " + std::to_string(128 << path.mtu) + ", service level " +
             std::to_string(path.address.sl) + ", traffic class " +
             std::to_string(path.address.grh.traffic_class));
  return path;
}

Status PathQuery::failed(const std::string& what, int error_number) const {
  const bool infiniband = is_infiniband(rail_->port().attributes);
  return Status(ErrorCode::kRankFailed,
                rail_->name() + ": rdma_cm finds no path from " + rail_->port().shown.gid + " to " +
                    text_of(peer_.gid) + ": " + what +
                    (error_number > 0 ? " (" + describe_errno(error_number) + ")" : "") +
                    (infiniband ? "; ask the subnet manager (saquery -p), and look at the partition"
                                : "; the peer's address must be reached over this port's network "
                                  "interface (ip route get, ping)"));
}

void PathQuery::look_again() {
  take_event();
  if (is_done() || Clock::now() < until_) return;
  const std::string step = step_ == Step::kAddress ? "the address" : "the route";
  finish(failed("no answer about " + step, ETIMEDOUT));
}

void PathQuery::finish(Result<Path> answer) {
  answer_.emplace(std::move(answer));
  release();
}

void PathQuery::release() {
  std::erase(resolver_.waiting_, this);
  if (id_ == nullptr) return;
  // Events that were not taken go with it.
  if (const int error = error_of(resolver_.api_->destroy_id(id_))) {
    log::warning("verbs: " + rail_->name() + ": rdma_destroy_id failed (" + describe_errno(error) +
                 ")");
  }
  id_ = nullptr;
}

Result<std::unique_ptr<PathResolver>> PathResolver::make(std::shared_ptr<CmApi> api,
                                                         std::chrono::milliseconds patience) {
  std::unique_ptr<PathResolver> made(new PathResolver(std::move(api), patience));
  errno = 0;
  made->channel_ = made->api_->create_event_channel();
  if (made->channel_ == nullptr) {
    return Status(ErrorCode::kUnsupported,
                  "rdma_cm cannot be used, which UNISONO_VERBS_CONNECT=cm asks for "
                  "(rdma_create_event_channel: " +
                      describe_errno(errno) +
                      "): load its user interface (modprobe rdma_ucm), see that "
                      "/dev/infiniband/rdma_cm is here and may be read and written (docker run "
                      "--device=/dev/infiniband), or use 'exchange'");
  }
  const int flags = fcntl(made->channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(made->channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status(ErrorCode::kSystem,
                  "fcntl on rdma_cm's events failed (" + describe_errno(errno) + ")");
  }
  return made;
}

PathResolver::~PathResolver() {
  if (channel_ != nullptr) api_->destroy_event_channel(channel_);
}

std::shared_ptr<PathQuery> PathResolver::ask(const Rail& rail, const QueuePairEnd& peer,
                                             const VerbsOptions& options) {
  std::shared_ptr<PathQuery> query(new PathQuery(*this, rail, peer, options));
  waiting_.push_back(query.get());
  if (const Status begun = query->begin(); !begun) query->finish(begun);
  return query;
}

bool PathResolver::poll() {
  if (waiting_.empty()) return false;
  bool any = false;
  for (int seen = 0; seen < kEventsAtOnce && !waiting_.empty(); ++seen) {
    rdma_cm_event* reported = nullptr;
    if (api_->get_cm_event(channel_, &reported) != 0) break;
    any = true;
    auto* query = static_cast<PathQuery*>(reported->id->context);
    const PathQuery::Event event{reported->event, reported->status};
    // First, because an id cannot be destroyed while it has events that are not acknowledged.
    api_->ack_cm_event(reported);
    query->take(event);
  }
  const std::vector<PathQuery*> waiting = waiting_;
  for (PathQuery* query : waiting) query->look_again();
  return any;
}

Status check_path_resolver() {
  UNISONO_ASSIGN(std::shared_ptr<CmApi> api, load_cm_library());
  return PathResolver::make(std::move(api)).status();
}

}  // namespace unisono::verbs
