// Which GID and which partition of a port to use, found by what they are and never by number.
// Set-up only; the caller's thread.
#include "transports/verbs/port_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace unisono::verbs {
namespace {

constexpr int kGidsMax = 256;  // gid_index is a byte in an address vector
constexpr int kPkeysMax = 65535;

bool starts_with(std::span<const std::uint8_t, 16> gid, std::initializer_list<int> bytes) {
  return std::equal(bytes.begin(), bytes.end(), gid.begin());
}

/// Reaches no further than this host or this cable: link-local or loopback.
bool is_near(const ibv_gid& gid) {
  if (is_ipv4(gid.raw)) return gid.raw[12] == 127 || (gid.raw[12] == 169 && gid.raw[13] == 254);
  return (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80) ||
         starts_with(gid.raw, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
}

bool is_same(const ibv_gid& left, const ibv_gid& right) {
  return std::memcmp(left.raw, right.raw, sizeof(left.raw)) == 0;
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, gid.raw, text.data(), text.size()) ? text.data() : "?";
}

/// On Ethernet whatever is not version 2 is version 1; on InfiniBand there is one type.
ibv_gid_type type_of(const ibv_gid_entry& entry, bool infiniband) {
  if (infiniband) return IBV_GID_TYPE_IB;
  return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
}

std::string type_text(ibv_gid_type type) {
  if (type == IBV_GID_TYPE_IB) return "InfiniBand";
  return type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1";
}

/// Lower is better.
int order_of(const ibv_gid_entry& entry, bool infiniband) {
  const bool old = type_of(entry, infiniband) == IBV_GID_TYPE_ROCE_V1;
  if (is_near(entry.gid)) return 4 + (old ? 1 : 0);
  if (infiniband) return 0;
  return (old ? 2 : 0) + (is_ipv4(entry.gid.raw) ? 0 : 1);
}

struct Gids {
  std::vector<ibv_gid_entry> entries;
  int error = 0;  ///< the last that was not "this entry is empty"
};

Gids read_gids(VerbsApi& api, ibv_context* context, std::uint8_t port,
               const ibv_port_attr& attributes) {
  Gids gids;
  for (int index = 0; index < std::min(attributes.gid_tbl_len, kGidsMax); ++index) {
    ibv_gid_entry entry{};
    const auto number = static_cast<std::uint32_t>(index);
    if (const int error = error_of(api.query_gid_ex(context, port, number, &entry)); error != 0) {
      if (error != ENODATA) gids.error = error;
      continue;
    }
    entry.gid_index = number;
    if (!is_same(entry.gid, ibv_gid{})) gids.entries.push_back(entry);
  }
  return gids;
}

bool fits(const GidWish& wish, const ibv_gid_entry& entry, bool infiniband) {
  if (wish.type && *wish.type != type_of(entry, infiniband)) return false;
  return !wish.address || is_same(*wish.address, entry.gid);
}

std::string why_no_gid(const Gids& gids, const GidWish& wish, bool infiniband) {
  if (gids.entries.empty()) {
    if (gids.error == EOPNOTSUPP) {
      return "GIDs cannot be read: libibverbs has no ibv_query_gid_ex; install rdma-core 33 or "
             "newer";
    }
    if (gids.error != 0) {
      return "GIDs cannot be read (" + std::string(std::strerror(gids.error)) + ")";
    }
    return infiniband ? "the port has no GID: the subnet manager has not configured it"
                      : "the port has no GID: give its network interface an address";
  }
  std::string text = "no GID ";
  text += wish.address ? "with the address " + gid_text(*wish.address)
                       : "of type " + type_text(*wish.type);
  text += "; the port has";
  for (std::size_t index = 0; index < gids.entries.size() && index < 8; ++index) {
    const ibv_gid_entry& entry = gids.entries[index];
    text += (index == 0 ? " " : ", ") + gid_text(entry.gid) + " (" +
            type_text(type_of(entry, infiniband)) + ")";
  }
  if (gids.entries.size() > 8) text += ", ...";
  return text + "; change UNISONO_VERBS_GID or give the network interface the address";
}

std::string hex(int key) {
  std::string text = "0x";
  for (int shift = 12; shift >= 0; shift -= 4) text += "0123456789abcdef"[(key >> shift) & 15];
  return text;
}

}  // namespace

Status unusable(std::string reason) { return {ErrorCode::kUnsupported, std::move(reason)}; }

bool is_ipv4(std::span<const std::uint8_t, 16> gid) {
  return starts_with(gid, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff});
}

bool is_roce_v1(const PortSurvey& port) {
  return port.shown.gid_type == type_text(IBV_GID_TYPE_ROCE_V1);
}

bool is_infiniband(const ibv_port_attr& attributes) {
  // "Unspecified" is what drivers that know nothing but InfiniBand leave there.
  return attributes.link_layer != IBV_LINK_LAYER_ETHERNET;
}

Status choose_gid(VerbsApi& api, ibv_context* context, const GidWish& wish, PortSurvey* survey) {
  const bool infiniband = is_infiniband(survey->attributes);
  const Gids gids = read_gids(api, context, survey->port, survey->attributes);
  const ibv_gid_entry* best = nullptr;
  for (const ibv_gid_entry& entry : gids.entries) {
    if (!fits(wish, entry, infiniband)) continue;
    if (!best || order_of(entry, infiniband) < order_of(*best, infiniband)) best = &entry;
  }
  if (best == nullptr) return unusable(why_no_gid(gids, wish, infiniband));
  survey->gid = best->gid;
  survey->gid_index = static_cast<std::uint8_t>(best->gid_index);
  survey->shown.gid = gid_text(best->gid);
  survey->shown.gid_type = type_text(type_of(*best, infiniband));
  survey->shown.gid_index = static_cast<int>(best->gid_index);
  return {};
}

Status find_gid_again(VerbsApi& api, ibv_context* context, PortSurvey* survey) {
  const bool infiniband = is_infiniband(survey->attributes);
  const Gids gids = read_gids(api, context, survey->port, survey->attributes);
  for (const ibv_gid_entry& entry : gids.entries) {
    if (!is_same(entry.gid, survey->gid)) continue;
    if (type_text(type_of(entry, infiniband)) != survey->shown.gid_type) continue;
    survey->gid_index = static_cast<std::uint8_t>(entry.gid_index);
    survey->shown.gid_index = static_cast<int>(entry.gid_index);
    return {};
  }
  return unusable("its GID " + survey->shown.gid +
                  " is gone: give the network interface its address again");
}

Status choose_pkey(VerbsApi& api, ibv_context* context, int wanted, PortSurvey* survey) {
  std::optional<int> found;
  bool is_limited = false;
  std::string seen;
  const int entries = std::min<int>(survey->attributes.pkey_tbl_len, kPkeysMax);
  for (int index = 0; index < entries; ++index) {
    __be16 raw = 0;
    if (api.query_pkey(context, survey->port, index, &raw) != 0) continue;
    const int key = ntohs(raw);
    if ((key & 0x7fff) == 0) continue;
    if (seen.size() < 64) seen += (seen.empty() ? "" : ", ") + hex(key);
    if ((key & 0x7fff) != (wanted & 0x7fff)) continue;
    const bool is_full = (key & 0x8000) != 0;
    if (!is_full) is_limited = true;
    if (!is_full && ((wanted & 0x8000) != 0 || found)) continue;
    found = index;
    survey->pkey = static_cast<std::uint16_t>(key);
    if (is_full) break;
  }
  if (found) {
    survey->pkey_index = static_cast<std::uint16_t>(*found);
    return {};
  }
  if (is_limited) {
    return unusable("the port is only a limited member of partition " + hex(wanted & 0x7fff) +
                    ", and limited members cannot talk with each other: make it a full member at "
                    "the subnet manager, or choose another UNISONO_VERBS_PARTITION");
  }
  return unusable("UNISONO_VERBS_PARTITION " + hex(wanted) + " is not in the port's table (" +
                  (seen.empty() ? "it is empty" : seen) + "): choose one of these, or " +
                  (is_infiniband(survey->attributes) ? "add it at the subnet manager"
                                                     : "separate RoCE traffic by VLAN"));
}

}  // namespace unisono::verbs
