#include "base/replace_file.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "base/errno_text.h"
#include "base/new_file.h"
#include "base/write_all.h"

namespace unisono {
namespace {

Status failed_to(const std::string& what, const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  const bool is_kept = error == EACCES || error == EPERM || error == EBUSY || error == EROFS ||
                       error == ENAMETOOLONG;
  return Status(is_full   ? ErrorCode::kOutOfResources
                : is_kept ? ErrorCode::kUnsupported
                          : ErrorCode::kSystem,
                what + " " + path + ": " + errno_text(error));
}

// An access list, whose mask stands in the mode where the group's rights do, would be lost with the
// old file, and other names of it would keep the old text.
bool has_other_names_or_access_list(const std::string& path, const struct stat& old) {
  return old.st_nlink > 1 || ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
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
  if (is_alike) return {};
  const Status failed = failed_to("cannot give owner and mode to", file.name(), errno);
  if (failed.code() == ErrorCode::kOutOfResources) return failed;
  return {ErrorCode::kUnsupported, failed.message()};
}

Status replace(const std::string& path, std::string_view text, mode_t mode,
               const struct stat* old) {
  NewFile file(path, kNewFileMark, mode);
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
  if (has_other_names_or_access_list(path, old)) {
    return {ErrorCode::kUnsupported, path + " has other names or an access list"};
  }
  return replace(path, text, old.st_mode & 0777, &old);
}

}  // namespace unisono
