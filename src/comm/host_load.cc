#include "comm/host_load.h"

#include <charconv>
#include <cmath>
#include <map>

#include "rendezvous/messages/peer_information.h"
#include "topology/allowed_cpus.h"
#include "topology/cpu_quota.h"
#include "topology/spread.h"

namespace unisono {
namespace {

// 0, which is no limit, for anything but a positive number.
double parse_quota(const std::string& text) {
  double quota = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, quota, std::chars_format::fixed);
  const bool is_quota = error == std::errc() && rest == end && std::isfinite(quota) && quota > 0;
  // More than any machine has is no limit either, and would not fit an int.
  return is_quota && quota < 1e6 ? quota : 0;
}

constexpr int kPlaceMax = 8191;  // the largest number of a processor or node

// "0 1": the cache and the node, each -1 where it is not known.
Place parse_place(const std::string& text) {
  const char* const end = text.data() + text.size();
  Place place;
  const auto [blank, error] = std::from_chars(text.data(), end, place.cache);
  if (error != std::errc() || blank == end || *blank != ' ') return {};
  const auto [rest, wrong] = std::from_chars(blank + 1, end, place.node);
  const auto is_number = [](int number) { return -1 <= number && number <= kPlaceMax; };
  const bool is_place = wrong == std::errc() && rest == end;
  return is_place && is_number(place.cache) && is_number(place.node) ? place : Place{};
}

}  // namespace

std::string processor_lines() {
  const std::string cpus = topology::read_allowed_cpus();
  const Place place = topology::read_place(cpus);
  std::string lines = "cpus " + cpus + "\nplace " + std::to_string(place.cache) + " " +
                      std::to_string(place.node) + "\n";
  if (const double quota = topology::read_cpu_quota(); quota > 0) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, quota, std::chars_format::fixed, 3);
    if (end.ec == std::errc()) lines += "quota " + std::string(text, end.ptr) + "\n";
  }
  return lines;
}

std::vector<HostLoad> host_loads(std::span<const Member> job) {
  std::map<HostKey, std::vector<std::size_t>> hosts;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    hosts[host_key(job[rank])].push_back(rank);
  }
  std::vector<HostLoad> loads(job.size());
  for (const auto& [host, ranks] : hosts) {
    std::vector<std::string> cpus;
    double quota = 0;
    for (const std::size_t rank : ranks) {
      cpus.push_back(find_address(job[rank].addresses, "cpus"));
      // Of different grants the tightest: ranks that wait for its holder wait for its time.
      const double granted = parse_quota(find_address(job[rank].addresses, "quota"));
      if (granted > 0 && (quota == 0 || granted < quota)) quota = granted;
    }
    std::map<std::int64_t, int> processes;
    for (const std::size_t rank : ranks) ++processes[job[rank].pid];
    const int cpus_together = topology::count_cpus(cpus, quota);
    for (const std::size_t rank : ranks) {
      loads[rank] = {.ranks = static_cast<int>(ranks.size()),
                     .cpus = cpus_together,
                     .processes = static_cast<int>(processes.size()),
                     .ranks_of_process = processes[job[rank].pid]};
    }
  }
  return loads;
}

std::vector<Place> places_of(std::span<const Member> job) {
  std::vector<Place> places;
  for (const Member& member : job) {
    places.push_back(parse_place(find_address(member.addresses, "place")));
  }
  return places;
}

}  // namespace unisono
