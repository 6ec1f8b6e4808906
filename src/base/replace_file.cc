#include "base/replace_file.h"

#include <unistd.h>

#include <cerrno>

#include "base/errno_text.h"
#include "base/new_file.h"

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

Status write_all(const NewFile& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file.fd(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed_to("cannot write", file.name(), errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status();
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text, mode_t mode) {
  NewFile file(path, ".new-", mode);
  if (!file) return failed_to("cannot make", file.name(), errno);
  UNISONO_TRY(write_all(file, text));
  if (!file.close()) return failed_to("cannot write", file.name(), errno);
  return file.take_place() ? Status() : failed_to("cannot replace", path, errno);
}

}  // namespace unisono
