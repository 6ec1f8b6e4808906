// A new file beside another whose place it takes once it is whole; it is gone again unless it did.
// Its name is its own, "<path><mark><16 hexadecimal digits>": no two writers have one file, and
// none puts what is another's in place. Header only, so that the trainer has it too.
//
// Thread rule: one thread at a time, any number of processes.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/hex_text.h"
#include "base/random_bytes.h"
#include "base/unique_fd.h"

namespace unisono {

class NewFile {
 public:
  static constexpr std::size_t kDigits = 16;

  /// False: errno says why there is none. The umask applies to `mode`.
  NewFile(const std::string& path, std::string_view mark, mode_t mode)
      : path_(path), name_(path + std::string(mark)) {
    std::array<std::byte, kDigits / 2> number{};
    if (!fill_with_random(number.data(), number.size())) return;
    name_ += hex_of(number);
    fd_.reset(::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    is_beside_ = static_cast<bool>(fd_);
  }
  ~NewFile() {
    if (is_beside_) ::unlink(name_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

  /// False: errno says what was not written. Full disks, and network file systems, may say so only
  /// now.
  bool close() { return ::close(fd_.release()) == 0; }

  /// False: errno says why not. ENOENT: somebody has removed it. A file that takes another's place
  /// is written to the disk at once by ext4, in 10 to 30 ms; two that change places are not.
  bool take_place() {
    struct stat facts {};
    const bool is_file = ::lstat(path_.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
    if (is_file &&
        ::renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      return true;  // the old one goes with the name
    }
    is_beside_ = ::rename(name_.c_str(), path_.c_str()) != 0;
    return !is_beside_;
  }

 private:
  std::string path_, name_;
  UniqueFd fd_;
  bool is_beside_ = false;  ///< what bears the name is to go
};

}  // namespace unisono
