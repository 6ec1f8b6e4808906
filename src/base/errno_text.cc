// See errno_text.h.
#include "base/errno_text.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace unisono {
namespace {

// A rank's sockets, event queues and memory, with something to spare; two ranks of one host hold
// one more for each other's memory, two that talk over sockets one for each stream.
constexpr int kDescriptorsPerRank = 20;

}  // namespace

bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

std::string errno_text(int error) {
  const std::string words = std::strerror(error);
  if (error == ENFILE) return words + "; raise the system's limit (sysctl fs.file-max)";
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return words;
  return fmt::format(
      "{}: this process may have {} open, and each of its ranks takes up to {} and some for each "
      "peer; raise the limit (ulimit -n) or start fewer ranks in a process",
      words, limit.rlim_cur, kDescriptorsPerRank);
}

}  // namespace unisono
