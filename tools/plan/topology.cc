#include "tools/plan/topology.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <vector>

#include "tools/common/invalid.h"
#include "tools/common/sizes.h"

namespace unisono::tools {
namespace {

using plan::LinkModel;
using plan::NetworkModel;

constexpr double kBitsPerSecondMin = 1e3;
constexpr double kBitsPerSecondMax = 1e16;
constexpr double kSecondsMax = 10;
constexpr int kCountMax = 1 << 20;  // of nodes, and of ranks of one

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kRates[] = {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

// A number and one of these units.
template <std::size_t kCount>
std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[kCount]) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  for (const auto& [name, factor] : units) {
    if (unit == name) return value * factor;
  }
  return std::nullopt;
}

Result<LinkModel> parse_link(std::string_view key, std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != text.npos) {
    const auto rate = parse_quantity(text.substr(0, colon), kRates);
    const auto latency = parse_quantity(text.substr(colon + 1), kTimes);
    const bool is_possible = rate && latency && *rate >= kBitsPerSecondMin &&
                             *rate <= kBitsPerSecondMax && *latency >= 0 && *latency <= kSecondsMax;
    if (is_possible) return LinkModel{.latency = *latency, .per_byte = 8 / *rate};
  }
  return invalid(
      "--topology: {} is '{}' but must be a rate from 1K to 10000T and a latency from 0us to 10s, "
      "as 100G:5us",
      key, text);
}

Result<int> parse_nodes(std::string_view text, int ranks) {
  const std::size_t by = text.find('x');
  if (by == text.npos) return invalid("--topology: nodes is '{}' but must be as 8x4", text);
  UNISONO_ASSIGN(const auto nodes,
                 parse_integer(text.substr(0, by), "--topology: nodes", 1, kCountMax));
  UNISONO_ASSIGN(const auto each,
                 parse_integer(text.substr(by + 1), "--topology: ranks of a node", 1, kCountMax));
  if (nodes * each != ranks) {
    return invalid("--topology: nodes: {0} x {1} = {2} ranks, but --ranks is {3}: add -n {2}",
                   nodes, each, nodes * each, ranks);
  }
  return static_cast<int>(each);
}

// What the fields have said so far.
struct Fields {
  std::optional<LinkModel> within;
  std::optional<LinkModel> between;
  int ranks_per_node = 0;
  std::vector<std::string_view> keys;
};

// Whether `field` is a preset, whose values later fields replace.
bool read_preset(std::string_view field, Fields* fields) {
  if (field == "flat") {
    fields->within = LinkModel{.latency = 5e-6, .per_byte = 8 / 100e9};
  } else if (field == "fat-tree") {
    fields->ranks_per_node = 8;
    fields->within = LinkModel{.latency = 1e-6, .per_byte = 8 / 3600e9};
    fields->between = LinkModel{.latency = 5e-6, .per_byte = 8 / 400e9};
  } else {
    return false;
  }
  return true;
}

// What came before a field must leave room for it.
Status check_place(std::string_view key, Fields* fields) {
  if (!fields->keys.empty() && (key == "flat" || key == "fat-tree")) {
    return invalid("--topology: {} must come first; fields that differ come after it", key);
  }
  if (std::ranges::find(fields->keys, key) != fields->keys.end()) {
    return invalid("--topology: {} is there twice; give it once", key);
  }
  fields->keys.push_back(key);
  return {};
}

Status read_field(std::string_view field, int ranks, Fields* fields) {
  const std::size_t equals = field.find('=');
  const std::string_view key = field.substr(0, equals);
  const std::string_view value = equals == field.npos ? "" : field.substr(equals + 1);
  UNISONO_TRY(check_place(key, fields));
  if (read_preset(field, fields)) return {};
  if (key == "nodes") {
    UNISONO_ASSIGN(fields->ranks_per_node, parse_nodes(value, ranks));
  } else if (key == "intra") {
    UNISONO_ASSIGN(fields->within, parse_link(key, value));
  } else if (key == "inter") {
    UNISONO_ASSIGN(fields->between, parse_link(key, value));
  } else if (key == "flat" || key == "fat-tree") {
    return invalid(
        "--topology: {0} is a preset and takes no value; write {0}, and fields that differ after a "
        "comma",
        key);
  } else {
    return invalid(
        "--topology: no field is called '{}'; choose of: flat, fat-tree, nodes=, intra=, inter=",
        key);
  }
  return {};
}

std::string describe(const LinkModel& link) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g Gb/s and %.4g us", gbps_of(link.per_byte),
                link.latency * 1e6);
  return text;
}

}  // namespace

Result<NetworkModel> parse_topology(std::string_view text, int ranks) {
  Fields fields;
  while (true) {
    const std::size_t comma = text.find(',');
    UNISONO_TRY(read_field(text.substr(0, comma), ranks, &fields));
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  if (!fields.within)
    return invalid("--topology: intra is missing: the links of ranks, as intra=400G:1us");
  if (fields.ranks_per_node > 0 && !fields.between) {
    return invalid("--topology: inter is missing: the links of nodes, as inter=100G:5us");
  }
  if (fields.between && fields.ranks_per_node == 0) {
    return invalid("--topology: nodes is missing: how many times how many ranks, as nodes=8x4");
  }
  return NetworkModel{.latency = fields.within->latency,
                      .per_byte = fields.within->per_byte,
                      .ranks_per_node = fields.ranks_per_node,
                      .between_nodes = fields.between.value_or(LinkModel{})};
}

std::string describe_topology(const NetworkModel& network, int ranks) {
  const std::string within = describe({network.latency, network.per_byte});
  if (network.ranks_per_node == 0) return within + " from each rank to each";
  const int nodes = (ranks + network.ranks_per_node - 1) / network.ranks_per_node;
  return std::to_string(nodes) + " nodes of " + std::to_string(network.ranks_per_node) +
         " ranks, " + within + " within, " + describe(network.between_nodes) + " between";
}

double gbps_of(double seconds_per_byte) { return 8e-9 / seconds_per_byte; }

}  // namespace unisono::tools
