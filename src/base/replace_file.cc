#include "base/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "base/errno_text.h"
#include "base/random_bytes.h"
#include "base/unique_fd.h"

namespace unisono {
namespace {

Status failed_to(const std::string& what, const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  const bool is_kept = error == EACCES || error == EPERM || error == EBUSY || error == EROFS;
  return Status(is_full   ? ErrorCode::kOutOfResources
                : is_kept ? ErrorCode::kUnsupported
                          : ErrorCode::kSystem,
                what + " " + path + ": " + errno_text(error));
}

Status write_all(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed_to("cannot write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status();
}

// Puts the file called `name` where another may be. A file that takes another's place is written to
// the disk at once by ext4, in 10 to 30 ms; two that change places are not.
Status take_place(const std::string& name, const std::string& path) {
  struct stat facts {};
  const bool is_file = lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
  if (is_file && renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    unlink(name.c_str());
    return Status();
  }
  if (rename(name.c_str(), path.c_str()) == 0) return Status();
  return failed_to("cannot replace", path, errno);
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text, mode_t mode) {
  std::uint64_t number = 0;
  if (!fill_with_random(&number, sizeof number)) {
    return failed_to("no random number for", path, errno);
  }
  const std::string name = fmt::format("{}.new-{:016x}", path, number);
  UniqueFd fd(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return failed_to("cannot make", name, errno);
  Status status = write_all(fd.get(), name, text);
  // A full disk may say so only now.
  if (close(fd.release()) != 0 && status) status = failed_to("cannot write", name, errno);
  if (status) status = take_place(name, path);
  if (!status) unlink(name.c_str());
  return status;
}

}  // namespace unisono
