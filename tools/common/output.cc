#include "tools/common/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace unisono::tools {

Status flush_output() {
  const bool lost_before = std::ferror(stdout) != 0;
  bool is_written = std::fflush(stdout) == 0 && !lost_before;
  if (is_written) return {};
  // An error met inside a print has left no errno; what is broken already is asked once more.
  if (lost_before) is_written = ::write(STDOUT_FILENO, "\n", 1) == 1;
  const char* why = is_written ? "part of it was lost" : std::strerror(errno);
  return Status(ErrorCode::kSystem, fmt::format("cannot write standard output: {}", why));
}

bool is_reader_gone() {
  pollfd polled{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLERR) != 0;
}

int fail(std::string_view command, const Status& why, int exit_status) {
  fmt::print(stderr, "{}: {}\n", command, why.message());
  return exit_status;
}

int finish_output(std::string_view command, int status) {
  const Status flushed = flush_output();
  if (flushed.ok()) return status;
  return fail(command, flushed, status == 0 ? 1 : status);
}

}  // namespace unisono::tools
