#include "base/process_facts.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <mutex>
#include <string>

#include "base/number_text.h"
#include "base/per_process.h"
#include "base/small_file.h"

namespace unisono {
namespace {

constexpr char kPart = '/';
constexpr std::size_t kLineBytesMax = 64, kFactsBytesMax = 1024;

// /proc is that of this process' own namespace, where numbers mean the same.
bool sees_own_processes() {
  char own[16];
  const ssize_t bytes = ::readlink("/proc/self", own, sizeof own);
  return bytes > 0 &&
         std::string_view(own, static_cast<std::size_t>(bytes)) == std::to_string(::getpid());
}

std::uint64_t inode_of(const char* path) {
  struct stat facts {};
  return ::stat(path, &facts) == 0 ? facts.st_ino : 0;
}

struct Boot {
  std::mutex mutex;
  std::string id;
};
constinit PerProcess<Boot> boot_of_host;

// Read once, unless that fails.
std::string boot_id() {
  Boot& boot = boot_of_host.get();
  const std::lock_guard lock(boot.mutex);
  if (boot.id.empty()) boot.id = first_line("/proc/sys/kernel/random/boot_id", kLineBytesMax);
  return boot.id;
}

// What processes have in common whose numbers and times of start mean the same; ends in a kPart.
// Empty: not to be seen. Virtual machines that were cloned as they ran have all but their names in
// common, and a kernel without time namespaces has one time.
std::string number_space() {
  const std::string boot = boot_id();
  const std::string host = first_line("/proc/sys/kernel/hostname", kLineBytesMax);
  const std::uint64_t numbers = pid_namespace(), times = inode_of("/proc/self/ns/time");
  if (boot.empty() || numbers == 0 || !sees_own_processes()) return {};
  std::string space = boot;
  space.append(1, kPart).append(host).append(1, kPart);
  return space + std::to_string(numbers) + kPart + std::to_string(times) + kPart;
}

}  // namespace

ProcessFacts parse_process_facts(std::string_view stat) {
  constexpr int kStateField = 3, kParentField = 4, kThreadsField = 20, kStartField = 22;
  // The name is in parentheses and may hold some, and blanks.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return {};
  std::string_view rest = stat.substr(name_end + 1);
  ProcessFacts facts;
  for (int field = kStateField; field <= kStartField; ++field) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return {};
    rest.remove_prefix(begin);
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == kStateField) facts.state = word.front();
    if (field == kParentField) {
      std::from_chars(word.data(), word.data() + word.size(), facts.parent);
    }
    if (field == kThreadsField) {
      std::from_chars(word.data(), word.data() + word.size(), facts.threads);
    }
    if (field == kStartField) {
      std::from_chars(word.data(), word.data() + word.size(), facts.start);
    }
    rest.remove_prefix(word.size());
  }
  return facts;
}

ProcessFacts facts_of_process(int pid) {
  if (pid <= 0) return {};
  return parse_process_facts(
      read_small_file("/proc/" + std::to_string(pid) + "/stat", kFactsBytesMax));
}

std::uint64_t pid_namespace() { return inode_of("/proc/self/ns/pid"); }

bool has_ended(int pid) {
  if (pid <= 0) return false;
  // Others' processes may be hidden in /proc.
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  return sees_own_processes() && is_corpse(facts_of_process(pid));
}

std::string process_name() {
  const std::string space = number_space();
  const std::uint64_t start = facts_of_process(::getpid()).start;
  if (space.empty() || start == 0) return {};
  return space + std::to_string(::getpid()) + kPart + std::to_string(start);
}

bool has_ended(std::string_view process) {
  const std::string space = number_space();
  if (space.empty() || !process.starts_with(space)) return false;
  process.remove_prefix(space.size());
  const std::size_t part = process.find(kPart);
  int pid = 0;
  std::uint64_t start = 0;
  if (part == std::string_view::npos || !read_number(process.substr(0, part), &pid) || pid <= 0 ||
      !read_number(process.substr(part + 1), &start)) {
    return false;
  }
  if (has_ended(pid)) return true;
  const ProcessFacts facts = facts_of_process(pid);
  return facts.state != 0 && facts.start != start;
}

}  // namespace unisono
