#include "rendezvous/meeting/unique_id.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

#include "base/hex_text.h"
#include "base/little_endian.h"
#include "base/log.h"
#include "base/network.h"
#include "base/per_process.h"

namespace unisono::rendezvous {
namespace {

// Title, key, job, port, number of addresses, addresses, zeros. An address is its family (4 or 6)
// and 16 bytes, of which IPv4 uses the first 4.
constexpr std::string_view kIdTitle = "unisono1";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kJobBytes = 16;
constexpr std::size_t kPortBytes = 2;
constexpr std::size_t kAddressBytes = 16;
constexpr std::size_t kHeadBytes = kIdTitle.size() + kKeyBytes + kJobBytes + kPortBytes + 1;
constexpr std::size_t kIdAddressesMax =
    (std::tuple_size_v<decltype(UniqueId::bytes)> - kHeadBytes) / (1 + kAddressBytes);
static_assert(kIdAddressesMax == 4);

Status no_id(const char* why) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("the unique id is none of this version of unisono: {}; give all ranks the "
                      "128 bytes of one id unchanged",
                      why)};
}

std::string name_of_job(const std::string& job_id) { return "unisono-" + job_id; }

std::string bytes_of_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// Family and address; empty for text that is no numeric address.
std::string bytes_of_address(const std::string& text) {
  char address[kAddressBytes] = {};
  const bool is_ipv4 = ::inet_pton(AF_INET, text.c_str(), address) == 1;
  if (!is_ipv4 && ::inet_pton(AF_INET6, text.c_str(), address) != 1) return "";
  return (is_ipv4 ? '\4' : '\6') + std::string(address, sizeof address);
}

// Empty for a family that is none.
std::string text_of_address(std::string_view bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = bytes[0] == 4 ? AF_INET : AF_INET6;
  if (bytes[0] != 4 && bytes[0] != 6) return "";
  if (::inet_ntop(family, bytes.data() + 1, text, sizeof text) == nullptr) return "";
  return text;
}

// The sockets of ids whose rank 0 has not joined yet. A forked child has none of them.
class WaitingIds {
 public:
  Status add(const std::string& job_id, std::vector<Listener> listeners) {
    const std::lock_guard lock(mutex_);
    if (ids_.size() >= kWaitingIdsMax) {
      return {ErrorCode::kOutOfResources,
              fmt::format("{} unique ids of this process wait for their rank 0, which is the limit;"
                          " let rank 0 join before more are made",
                          ids_.size())};
    }
    ids_.emplace(job_id, std::move(listeners));
    return {};
  }

  Result<std::vector<Listener>> take(const std::string& job_id) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(job_id);
    if (found == ids_.end()) {
      return Status(ErrorCode::kInvalidArgument,
                    "rank 0 joins by a unique id that its own process has made, once: this process "
                    "has not made it, or has used it before",
                    0);
    }
    std::vector<Listener> listeners = std::move(found->second);
    ids_.erase(found);
    return listeners;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<Listener>> ids_;
};

constinit PerProcess<WaitingIds> waiting_ids;

Result<UniqueId> encode(const JobKey& key, const std::string& job_id, std::uint16_t port,
                        const std::vector<std::string>& hosts) {
  std::string addresses;
  std::size_t count = 0;
  for (const std::string& host : hosts) {
    const std::string bytes = bytes_of_address(host);
    if (bytes.empty() || count == kIdAddressesMax) continue;
    addresses += bytes;
    ++count;
  }
  if (count == 0) {
    return Status(ErrorCode::kRendezvous,
                  fmt::format("no address for a unique id: '{}' is no numeric one; set "
                              "UNISONO_INTERFACE to one that the other hosts can reach",
                              hosts.empty() ? "" : hosts.front()));
  }
  if (count < hosts.size()) {
    log::warning(
        fmt::format("a unique id has room for {} of this host's {} addresses; set "
                    "UNISONO_INTERFACE if the others do not reach it",
                    count, hosts.size()));
  }
  std::string text;
  text.reserve(std::tuple_size_v<decltype(UniqueId::bytes)>);  // the key is in no other place
  text += kIdTitle;
  text.append(reinterpret_cast<const char*>(key.bytes().data()), kKeyBytes);
  text += bytes_of_hex(job_id);
  append_little_endian(port, &text);
  text += static_cast<char>(count);
  text += addresses;
  UniqueId id;
  std::memcpy(id.bytes.data(), text.data(), text.size());
  cleanse(&text);
  return id;
}

}  // namespace

Result<UniqueId> make_unique_id(const std::string& interface_address) {
  const std::string job_id = random_id();
  const JobKey key = JobKey::random();
  std::vector<Listener> listeners;
  UNISONO_ASSIGN(Listener local, listen_unix(name_of_job(job_id)));
  local.needs_proof = true;
  listeners.push_back(std::move(local));
  UNISONO_ASSIGN(Listener remote, listen_tcp("", 0, interface_address));
  std::vector<std::string> hosts{interface_address};
  if (interface_address.empty()) hosts = local_addresses(remote.is_ipv6);
  UNISONO_ASSIGN(const UniqueId id, encode(key, job_id, remote.port, hosts));
  listeners.push_back(std::move(remote));
  UNISONO_TRY(waiting_ids.get().add(job_id, std::move(listeners)));
  return id;
}

Result<Contact> contact_of(const UniqueId& id) {
  const std::string_view text(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
  if (!text.starts_with(kIdTitle)) return no_id("it begins otherwise");
  std::string_view rest = text.substr(kIdTitle.size());
  const auto take = [&](std::size_t bytes) {
    const std::string_view part = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return part;
  };
  Contact contact;
  SecretText key(hex_of(std::as_bytes(std::span(take(kKeyBytes)))));
  UNISONO_ASSIGN(contact.key, JobKey::from_text(key.view()));
  contact.job_id = hex_of(std::as_bytes(std::span(take(kJobBytes))));
  contact.unix_name = name_of_job(contact.job_id);
  const auto port = static_cast<std::uint16_t>(read_little_endian(take(kPortBytes)));
  const auto count = static_cast<std::size_t>(read_little_endian(take(1)));
  if (port == 0 || count > kIdAddressesMax) return no_id("its port or its addresses are damaged");
  for (std::size_t i = 0; i < count; ++i) {
    std::string host = text_of_address(take(1 + kAddressBytes));
    if (host.empty()) return no_id("one of its addresses is damaged");
    contact.tcp.emplace_back(std::move(host), port);
  }
  if (rest.find_first_not_of('\0') != std::string_view::npos) return no_id("it ends otherwise");
  return contact;
}

Result<std::vector<Listener>> take_listeners(const std::string& job_id) {
  return waiting_ids.get().take(job_id);
}

}  // namespace unisono::rendezvous
