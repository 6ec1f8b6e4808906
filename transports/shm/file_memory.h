// Memory of the caller's that is a mapped file (memfd_create, mmap): whether other processes can
// map the same file, and how they do. The file's size must be sealed against shrinking, because
// reading beyond the end of a file raises SIGBUS.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::shm {

/// Numbers that no two files of a host have in common.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// What lies behind a range of this process's memory.
struct FileMemory {
  FileIdentity file;
  std::string refusal;  ///< why other processes cannot map it; empty: they can
};

/// Finds out from the process's own mappings whether `memory` is the file behind `fd` from `offset`
/// on. kInvalidArgument where it is not, or where `fd` is no descriptor.
Result<FileMemory> find_file_memory(std::span<const std::byte> memory, int fd,
                                    std::uint64_t offset);

/// Whether the kernel still lets others of this user open the descriptors of this process: not once
/// it has changed its user or asked not to be read. A system call.
bool is_dumpable();

/// Descriptor `fd` of process `pid`, opened for reading here, if it is `file` and in memory. Any
/// numbers may be given: nothing is opened that could wait or act. Errors: kSystem,
/// kOutOfResources, kProtocol where it is another file.
Result<UniqueFd> open_file_of(std::int64_t pid, std::int64_t fd, const FileIdentity& file);

/// A part of another process's file, mapped for reading.
class FileView {
 public:
  /// Errors: kProtocol where the file may shrink or does not reach as far; kOutOfResources,
  /// kSystem.
  static Result<std::shared_ptr<const FileView>> map(const UniqueFd& fd, std::uint64_t offset,
                                                     std::uint64_t bytes);
  ~FileView();
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;

  const std::byte* base() const { return mapped_.data() + skipped_; }
  std::size_t bytes() const { return bytes_; }

 private:
  FileView(std::span<std::byte> mapped, std::size_t skipped, std::size_t bytes)
      : mapped_(mapped), skipped_(skipped), bytes_(bytes) {}

  std::span<std::byte> mapped_;  // whole pages
  std::size_t skipped_;
  std::size_t bytes_;
};

}  // namespace unisono::shm
