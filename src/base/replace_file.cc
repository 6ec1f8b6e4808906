#include "base/replace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errno_text.h"
#include "base/new_file.h"
#include "base/write_all.h"

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

// Whoever could read or write the old file can the new one, and nobody else.
Status make_alike(const NewFile& file, const struct stat& old) {
  struct stat facts {};
  bool is_alike = fstat(file.fd(), &facts) == 0;
  if (facts.st_uid != old.st_uid || facts.st_gid != old.st_gid) {
    is_alike = is_alike && fchown(file.fd(), old.st_uid, old.st_gid) == 0;
  }
  if ((facts.st_mode & 07777) != (old.st_mode & 07777)) {
    is_alike = is_alike && fchmod(file.fd(), old.st_mode & 07777) == 0;
  }
  return is_alike ? Status() : failed_to("cannot give owner and mode to", file.name(), errno);
}

Status replace(const std::string& path, std::string_view text, mode_t mode,
               const struct stat* old) {
  NewFile file(path, ".new-", mode);
  if (!file) return failed_to("cannot make", file.name(), errno);
  if (old != nullptr) UNISONO_TRY(make_alike(file, *old));
  if (const int error = write_all(file.fd(), text); error != 0) {
    return failed_to("cannot write", file.name(), error);
  }
  if (!file.close()) return failed_to("cannot write", file.name(), errno);
  return file.take_place() ? Status() : failed_to("cannot replace", path, errno);
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text, mode_t mode) {
  return replace(path, text, mode, nullptr);
}

Status replace_file_alike(const std::string& path, std::string_view text) {
  struct stat old {};
  if (stat(path.c_str(), &old) != 0) return replace(path, text, 0666, nullptr);
  return replace(path, text, old.st_mode & 0777, &old);
}

}  // namespace unisono
