#include "base/process_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <string>

#include "base/unique_fd.h"

namespace unisono {

ProcessFacts parse_process_facts(std::string_view stat) {
  constexpr int kStateField = 3, kParentField = 4, kStartField = 22;
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
    if (field == kStartField) {
      std::from_chars(word.data(), word.data() + word.size(), facts.start);
    }
    rest.remove_prefix(word.size());
  }
  return facts;
}

ProcessFacts facts_of_process(int pid) {
  if (pid <= 0) return {};
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof text) : -1;
  return bytes <= 0 ? ProcessFacts{} : parse_process_facts({text, static_cast<std::size_t>(bytes)});
}

std::uint64_t pid_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace unisono
