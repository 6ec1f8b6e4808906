#include "topology/control_groups.h"

#include <sstream>

#include "base/small_file.h"

namespace unisono::topology {
namespace {

constexpr std::size_t kMembershipBytesMax = 16 * 1024;
constexpr std::size_t kLineBytesMax = 128;

double tighter(double a, double b) {
  if (a <= 0) return b;
  return b > 0 && b < a ? b : a;
}

// Any group on the way up to the mount may limit. Inside a container the path may name a folder of
// the host that is not mounted here; the walk then still ends at the mount itself.
double tightest_on_the_way_up(ControlGroup group, std::string path,
                              double (*read)(const ControlGroup&)) {
  const std::string mount = group.folder;
  double limit = 0;
  while (true) {
    group.folder = mount + path;
    limit = tighter(limit, read(group));
    if (path.empty()) return limit;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool is_among(const std::string& controllers, std::string_view controller) {
  return ("," + controllers + ",").find("," + std::string(controller) + ",") != std::string::npos;
}

}  // namespace

std::string ControlGroup::line_of(const std::string& name) const {
  return first_line(folder + "/" + name, kLineBytesMax);
}

std::string read_group_membership() {
  return read_small_file("/proc/self/cgroup", kMembershipBytesMax);
}

double tightest_limit(const std::string& membership, const std::string& mount,
                      std::string_view controller, double (*read)(const ControlGroup&)) {
  double limit = 0;
  std::istringstream lines(membership);
  // Each line is "hierarchy:controllers:path"; hierarchy 0 without controllers is version 2.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limit = tighter(limit, tightest_on_the_way_up({mount, true}, path, read));
    } else if (is_among(controllers, controller)) {
      for (const std::string& name : {std::string(controller), controllers}) {
        limit = tighter(limit, tightest_on_the_way_up({mount + "/" + name, false}, path, read));
      }
    }
  }
  return limit;
}

}  // namespace unisono::topology
