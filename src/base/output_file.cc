#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/errno_text.h"
#include "base/new_file.h"
#include "base/replace_file.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;

constexpr int kSymbolicLinksMax = 40;  // as many as the kernel follows

Status cannot_write(const std::string& path, int error) {
  return Status(ErrorCode::kSystem, path + " cannot be written: " + errno_text(error));
}

fs::file_type type_of(const std::string& path) {
  std::error_code error;
  return fs::status(path, error).type();
}

// What the links lead to, whether it exists or not.
fs::path behind_links(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kSymbolicLinksMax && fs::is_symlink(path, error); ++i) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path;
}

// Opening a pipe would wait for its reader, and closing it would be the end for that reader.
bool can_write_in_place(const std::string& path, fs::file_type type) {
  if (type == fs::file_type::fifo) return ::access(path.c_str(), W_OK) == 0;
  return static_cast<bool>(UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)));
}

// Behind the slash a file is no folder. A new file has a longer name until it is whole.
bool can_make(const fs::path& path) {
  const fs::path folder = "." / path.parent_path() / "";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return false;
  errno = ENAMETOOLONG;
  const std::size_t added = kNewFileMark.size() + NewFile::kDigits;
  return path.filename().native().size() + added <= NAME_MAX;
}

}  // namespace

Status check_output(const std::string& path) {
  const fs::file_type type = type_of(path);
  const bool is_new = type == fs::file_type::not_found && !path.empty();
  const bool can = is_new ? can_make(behind_links(path)) : can_write_in_place(path, type);
  return can ? Status() : cannot_write(path, errno);
}

Status write_output(const std::string& path, std::string_view text) {
  const fs::file_type type = type_of(path);
  if (type == fs::file_type::regular || type == fs::file_type::not_found) {
    const Status status = replace_file_alike(behind_links(path), text);
    const bool is_there = ::access(path.c_str(), W_OK) == 0;
    if (status.code() != ErrorCode::kUnsupported || !is_there) return status;
  }
  // As check_output() opened it: some systems let nobody create what is there in a shared folder.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd) return cannot_write(path, errno);
  if (const int error = write_all(fd.get(), text); error != 0) return cannot_write(path, error);
  return ::close(fd.release()) == 0 ? Status() : cannot_write(path, errno);
}

}  // namespace unisono
