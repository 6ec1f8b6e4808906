#include "rendezvous/meeting/rendezvous_point.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/hex_text.h"
#include "base/network.h"
#include "base/number_text.h"
#include "rendezvous/meeting/unique_id.h"

namespace unisono {
namespace {

using Kind = RendezvousPoint::Kind;

constexpr int kPortMax = 65535;
constexpr std::string_view kAccepted =
    "accepted are env://, tcp://host:port, file:///path and alone://";

Status bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Status add_key(std::string_view job_key, RendezvousPoint* point) {
  if (job_key.empty()) return {};
  auto key = JobKey::from_text(job_key);
  if (!key) return {key.error().code(), "UNISONO_JOB_KEY: " + key.error().message()};
  point->key = *key;
  point->has_key = true;
  return {};
}

Status need_key(const RendezvousPoint& point) {
  if (point.has_key) return {};
  return {
      ErrorCode::kAuthentication,
      fmt::format("rendezvous at {}:{} needs a job key, and UNISONO_JOB_KEY is not set; make one "
                  "with 'openssl rand -hex 32' and set it on all ranks",
                  point.name, point.port)};
}

bool is_host_name(std::string_view host) {
  return !host.empty() && host.size() <= 255 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%';
  });
}

Result<RendezvousPoint> from_tcp(std::string_view url, std::string_view rest) {
  const auto wrong = [&](std::string_view what, std::string_view value) {
    return bad(
        fmt::format("the {} '{}' of '{}' is not valid; write tcp://host:port with a port "
                    "from 1 to {} and an IPv6 address in brackets",
                    what, value, url, kPortMax));
  };
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return wrong("port", "");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port_text = rest.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!is_host_name(host) || (!bracketed && host.find(':') != std::string_view::npos)) {
    return wrong("host", host);
  }
  RendezvousPoint point;
  point.kind = Kind::kTcp;
  point.name = host;
  if (!read_number(port_text, &point.port) || point.port == 0) return wrong("port", port_text);
  return point;
}

Result<RendezvousPoint> from_file(std::string_view url, std::string_view path) {
  if (path.size() < 2 || path.front() != '/' || path.back() == '/' ||
      path.find('\0') != std::string_view::npos) {
    return bad(
        fmt::format("the path '{}' of '{}' is not valid; write file:///path with the "
                    "absolute path of a file that all ranks can see",
                    path, url));
  }
  RendezvousPoint point;
  point.kind = Kind::kFile;
  point.name = path;
  return point;
}

bool on_one_host(const LauncherVariables& launcher) {
  if (launcher.local_world_size >= 0) return launcher.local_world_size == launcher.world_size;
  return is_loopback(launcher.master_address);
}

// Which jobs may share a name: none that differ in user, address, port or run id.
Result<std::string> abstract_name(const LauncherVariables& launcher) {
  const std::string text = fmt::format("{}\n{}\n{}\n{}", ::geteuid(), launcher.master_address,
                                       launcher.master_port, launcher.run_id);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &bytes, EVP_sha256(), nullptr) != 1) {
    return Status(ErrorCode::kSystem, "OpenSSL offers no SHA-256");
  }
  constexpr std::size_t kDigestBytesUsed = 8;
  return "unisono-" + hex_of(std::as_bytes(std::span(digest, kDigestBytesUsed)));
}

// Launchers other than torchrun and 'unisono run' say who the ranks are, and not all where they
// meet.
Status check_place(const LauncherVariables& launcher) {
  const bool has_place = !launcher.master_address.empty() && launcher.master_port >= 0;
  const bool has_name = on_one_host(launcher) && !launcher.run_id.empty();
  if (has_place || has_name) return {};
  return bad(fmt::format(
      "{} started this process as rank {} of {} ({}, {}), {} on its host, and does not say where "
      "they meet; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, the "
      "same on all ranks (on several hosts UNISONO_JOB_KEY as well), or UNISONO_RENDEZVOUS",
      launcher.launcher, launcher.rank, launcher.world_size, launcher.rank_name,
      launcher.world_size_name,
      launcher.local_world_size < 0 ? "nobody knows how many"
                                    : fmt::format("{} of them", launcher.local_world_size)));
}

Status check_launcher(const LauncherVariables& launcher) {
  const auto missing = [](std::string_view set, std::string_view unset) {
    return bad(
        fmt::format("{} is set but {} is not; start the ranks with torchrun or 'unisono "
                    "run', or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                    set, unset));
  };
  if (launcher.rank < 0) return missing(launcher.world_size_name, launcher.rank_name);
  if (launcher.world_size < 0) return missing(launcher.rank_name, launcher.world_size_name);
  if (launcher.rank >= launcher.world_size) {
    return bad(fmt::format("{} is {}, accepted are 0 to {} ({} is {})", launcher.rank_name,
                           launcher.rank, launcher.world_size - 1, launcher.world_size_name,
                           launcher.world_size));
  }
  if (launcher.local_world_size > launcher.world_size) {
    return bad(fmt::format("LOCAL_WORLD_SIZE is {}, accepted are 1 to {} (WORLD_SIZE)",
                           launcher.local_world_size, launcher.world_size));
  }
  if (launcher.world_size == 1) return {};
  if (!launcher.launcher.empty()) return check_place(launcher);
  if (launcher.master_address.empty()) return missing("RANK", "MASTER_ADDR");
  if (launcher.master_port < 0) return missing("RANK", "MASTER_PORT");
  return {};
}

Result<std::uint16_t> rendezvous_port(const LauncherVariables& launcher, int port) {
  if (port == 0 && launcher.master_port == kPortMax) {
    return bad(
        fmt::format("MASTER_PORT is {}, so that the port after it does not exist; set "
                    "UNISONO_PORT or another MASTER_PORT",
                    kPortMax));
  }
  if (port == launcher.master_port && launcher.agent_store) {
    return bad(
        fmt::format("UNISONO_PORT is {}, which the launcher's own store uses as "
                    "MASTER_PORT; choose another UNISONO_PORT",
                    port));
  }
  // MASTER_PORT itself belongs to the framework's store.
  return static_cast<std::uint16_t>(port == 0 ? launcher.master_port + 1 : port);
}

Result<RendezvousPoint> from_launcher(const LauncherVariables& launcher, int port) {
  RendezvousPoint point;
  if (launcher.rank < 0 && launcher.world_size < 0) return point;
  UNISONO_TRY(check_launcher(launcher));
  if (launcher.world_size == 1) return point;
  if (on_one_host(launcher)) {
    point.kind = Kind::kAbstract;
    UNISONO_ASSIGN(point.name, abstract_name(launcher));
    return point;
  }
  if (!is_host_name(launcher.master_address)) {
    return bad(fmt::format("MASTER_ADDR is '{}', accepted is a host name or a numeric address",
                           launcher.master_address));
  }
  point.kind = Kind::kTcp;
  point.name = launcher.master_address;
  UNISONO_ASSIGN(point.port, rendezvous_port(launcher, port));
  return point;
}

bool is_all_local(const LauncherVariables& launcher) {
  return launcher.world_size > 0 && launcher.local_world_size == launcher.world_size;
}

Result<RendezvousPoint> parse(std::string_view url, const LauncherVariables& launcher, int port) {
  const auto after = [&](std::string_view scheme) { return url.substr(scheme.size()); };
  if (url.empty() || url == "env://") return from_launcher(launcher, port);
  if (url == "alone://") return RendezvousPoint();
  if (url.rfind("tcp://", 0) == 0) return from_tcp(url, after("tcp://"));
  if (url.rfind("file://", 0) == 0) return from_file(url, after("file://"));
  return bad(fmt::format("the rendezvous '{}' is not known; {}", url, kAccepted));
}

}  // namespace

Result<RendezvousPoint> rendezvous_point_from_url(std::string_view url,
                                                  const LauncherVariables& launcher, int port,
                                                  std::string_view job_key) {
  if (port < 0 || port > kPortMax) {
    return bad(
        fmt::format("UNISONO_PORT is {}, accepted are 1 to {}, or 0 for any", port, kPortMax));
  }
  UNISONO_ASSIGN(RendezvousPoint point, parse(url, launcher, port));
  if (point.kind == Kind::kFile) point.single_host = is_all_local(launcher);
  UNISONO_TRY(add_key(job_key, &point));
  if (point.kind == Kind::kTcp) UNISONO_TRY(need_key(point));
  return point;
}

Result<RendezvousPoint> rendezvous_point_at_store(Store* store, const LauncherVariables& launcher,
                                                  std::string_view job_key) {
  RendezvousPoint point;
  point.kind = Kind::kStore;
  point.store = store;
  point.single_host = is_all_local(launcher);
  UNISONO_TRY(add_key(job_key, &point));
  return point;
}

Result<RendezvousPoint> rendezvous_point_at_id(const UniqueId& id) {
  UNISONO_ASSIGN(const rendezvous::Contact contact, rendezvous::contact_of(id));
  RendezvousPoint point;
  point.kind = Kind::kUniqueId;
  point.name = contact.job_id;
  point.id = id;
  point.has_key = true;
  point.key = contact.key;
  return point;
}

}  // namespace unisono
