#include "topology/cpu_quota.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/small_file.h"

namespace unisono::topology {
namespace {

constexpr std::size_t kFileBytesMax = 16 * 1024;
constexpr std::size_t kNumberBytesMax = 128;

double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

// Version 2: "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  std::istringstream text(first_line(folder + "/cpu.max", kNumberBytesMax));
  double quota = 0;
  double period = 0;
  return text >> quota >> period ? ratio(quota, period) : 0;
}

// Version 1: two files; a quota of -1 is none.
double quota_v1(const std::string& folder) {
  const std::string quota = first_line(folder + "/cpu.cfs_quota_us", kNumberBytesMax);
  const std::string period = first_line(folder + "/cpu.cfs_period_us", kNumberBytesMax);
  return ratio(std::strtod(quota.c_str(), nullptr), std::strtod(period.c_str(), nullptr));
}

double tighter(double a, double b) {
  if (a <= 0) return b;
  return b > 0 && b < a ? b : a;
}

// Any group on the way up to the mount may limit. Inside a container the path may name a folder of
// the host that is not mounted here; the walk then still ends at the mount itself.
template <typename Read>
double tightest_on_the_way_up(const std::string& mount, std::string path, Read read) {
  double quota = 0;
  while (true) {
    quota = tighter(quota, read(mount + path));
    if (path.empty()) return quota;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool has_cpu_controller(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

double cpu_quota_of(const std::string& membership, const std::string& mount) {
  double quota = 0;
  std::istringstream lines(membership);
  // Each line is "hierarchy:controllers:path"; hierarchy 0 without controllers is version 2.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      quota = tighter(quota, tightest_on_the_way_up(mount, path, quota_v2));
    } else if (has_cpu_controller(controllers)) {
      for (const std::string& name : {std::string("/cpu"), "/" + controllers}) {
        quota = tighter(quota, tightest_on_the_way_up(mount + name, path, quota_v1));
      }
    }
  }
  return quota;
}

double read_cpu_quota() {
  return cpu_quota_of(read_small_file("/proc/self/cgroup", kFileBytesMax), "/sys/fs/cgroup");
}

}  // namespace unisono::topology
