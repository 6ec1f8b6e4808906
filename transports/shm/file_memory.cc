#include "transports/shm/file_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/errno_text.h"
#include "base/limits.h"

namespace unisono::shm {
namespace {

Status refusal_by_system(const std::string& what, int error) {
  const bool scarce = error == ENOMEM || is_out_of_descriptors(error);
  return Status(scarce ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
                what + ": " + errno_text(error));
}

FileIdentity identity_of(const struct stat& facts) { return {facts.st_dev, facts.st_ino}; }

bool reaches(const struct stat& facts, std::uint64_t offset, std::uint64_t bytes) {
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  return offset <= size && bytes <= size - offset;
}

// ---- What this process has mapped ---------------------------------------------------------------

// A line of /proc/self/maps.
struct Area {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file
  FileIdentity file;
  bool is_shared = false;
};

std::optional<Area> parse_area(const std::string& line) {
  char access[5] = {};
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  unsigned int major = 0, minor = 0;
  if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu", &begin, &end, access, &offset, &major,
                  &minor, &inode) != 7) {
    return std::nullopt;
  }
  return Area{begin, end, offset, {makedev(major, minor), inode}, access[3] == 's'};
}

Result<std::string> read_maps() {
  const UniqueFd fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  ssize_t got = fd ? 1 : -1;
  while (got > 0) {
    got = ::read(fd.get(), part, sizeof part);
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
    if (got < 0 && errno == EINTR) got = 1;
  }
  if (got < 0) return refusal_by_system("/proc/self/maps cannot be read", errno);
  return text;
}

enum class Mapped { kShared, kPrivate, kOtherwise };

// Whether the whole of `memory` is `file` from `offset` on. Mappings may be split, so lines are
// followed from its beginning to its end.
Mapped how_is_it_mapped(const std::string& maps, std::span<const std::byte> memory,
                        const FileIdentity& file, std::uint64_t offset) {
  std::size_t done = 0;
  bool is_shared = true;
  for (std::size_t line = 0; line < maps.size() && done < memory.size();) {
    const std::size_t end = std::min(maps.find('\n', line), maps.size());
    const std::optional<Area> area = parse_area(maps.substr(line, end - line));
    line = end + 1;
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(memory.data()) + done;
    if (!area || area->end <= at) continue;
    const bool fits = area->begin <= at && area->file == file &&
                      area->offset + (at - area->begin) == offset + done;
    if (!fits) return Mapped::kOtherwise;
    is_shared = is_shared && area->is_shared;
    done += area->end - at;
  }
  if (done < memory.size()) return Mapped::kOtherwise;
  return is_shared ? Mapped::kShared : Mapped::kPrivate;
}

std::string place_text(std::span<const std::byte> memory, int fd, std::uint64_t offset) {
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<const void*>(memory.data()));
  return "the " + std::to_string(memory.size()) + " bytes at " + address + " and descriptor " +
         std::to_string(fd) + " from offset " + std::to_string(offset);
}

std::string descriptor(int fd) { return "descriptor " + std::to_string(fd); }

std::string unsealable() {
  return " may shrink and cannot be sealed: use memfd_create() with MFD_ALLOW_SEALING";
}

// What keeps other processes from mapping memory whose file was found; empty: nothing.
std::string refusal_of(int fd, int seals) {
  const std::string name = descriptor(fd);
  const bool may_shrink = (seals & F_SEAL_SHRINK) == 0;
  if (may_shrink && (seals & F_SEAL_SEAL) != 0) return name + unsealable();
  if (may_shrink) {
    return name + " may shrink: seal it with fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)";
  }
  // Its pages are reserved, which takes a writer.
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) return name + " is not open for writing";
  return {};
}

}  // namespace

Result<FileMemory> find_file_memory(std::span<const std::byte> memory, int fd,
                                    std::uint64_t offset) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) {
    return Status(ErrorCode::kInvalidArgument, "MemorySource::fd " + std::to_string(fd) +
                                                   " is no open descriptor: " + errno_text(errno));
  }
  FileMemory found{identity_of(facts), {}};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    found.refusal = descriptor(fd) + unsealable();
    return found;
  }
  const std::string place = place_text(memory, fd, offset);
  if (!reaches(facts, offset, memory.size())) {
    return Status(ErrorCode::kInvalidArgument,
                  place + ": the file ends at " + std::to_string(facts.st_size));
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if ((reinterpret_cast<std::uint64_t>(memory.data()) - offset) % page != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  place + ": they lie at different places of a page (" + std::to_string(page) +
                      " bytes), so one is not a mapping of the other");
  }
  const Result<std::string> maps = read_maps();
  if (!maps) {
    found.refusal = "what is mapped here is not known: " + maps.error().message();
    return found;
  }
  switch (how_is_it_mapped(*maps, memory, found.file, offset)) {
    case Mapped::kOtherwise:
      return Status(ErrorCode::kInvalidArgument,
                    place + " are not the same memory: /proc/self/maps says what is mapped there");
    case Mapped::kPrivate:
      found.refusal = descriptor(fd) +
                      " is mapped privately: others would not see what is written (MAP_SHARED)";
      break;
    case Mapped::kShared:
      found.refusal = refusal_of(fd, seals);
      break;
  }
  return found;
}

bool is_dumpable() { return prctl(PR_GET_DUMPABLE) == 1; }

// A path alone (O_PATH) is harmless to open, whatever is at its end.
Result<UniqueFd> open_file_of(std::int64_t pid, std::int64_t fd, const FileIdentity& file) {
  constexpr std::int64_t kNumberMax = std::numeric_limits<std::int32_t>::max();
  if (pid <= 0 || pid > kNumberMax || fd < 0 || fd > kNumberMax) {
    return Status(ErrorCode::kProtocol, "process " + std::to_string(pid) + " with descriptor " +
                                            std::to_string(fd) + " cannot be");
  }
  const std::string name = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const UniqueFd path(::open(name.c_str(), O_PATH | O_CLOEXEC));
  if (!path) return refusal_by_system(name + " cannot be opened", errno);
  struct stat facts {};
  struct statfs system {};
  if (fstat(path.get(), &facts) != 0 || fstatfs(path.get(), &system) != 0) {
    return refusal_by_system(name + " cannot be looked at", errno);
  }
  const auto kind = static_cast<std::uint32_t>(system.f_type);
  if (!(identity_of(facts) == file) || !S_ISREG(facts.st_mode) ||
      (kind != TMPFS_MAGIC && kind != static_cast<std::uint32_t>(HUGETLBFS_MAGIC))) {
    return Status(ErrorCode::kProtocol, name + " is not the memory that it is said to be");
  }
  const std::string own = "/proc/self/fd/" + std::to_string(path.get());
  UniqueFd opened(::open(own.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return refusal_by_system(name + " cannot be opened for reading", errno);
  return opened;
}

Result<std::shared_ptr<const FileView>> FileView::map(const UniqueFd& fd, std::uint64_t offset,
                                                      std::uint64_t bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(ErrorCode::kProtocol, "the size of a registered file is not sealed");
  }
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return refusal_by_system("no size of a registered file", errno);
  if (bytes == 0 || bytes > kBufferBytesMax || !reaches(facts, offset, bytes)) {
    return Status(ErrorCode::kProtocol,
                  std::to_string(bytes) + " bytes from " + std::to_string(offset) +
                      " on of a registered file of " + std::to_string(facts.st_size));
  }
  // Huge pages are mapped whole.
  const std::uint64_t page =
      std::max<std::uint64_t>(static_cast<std::uint64_t>(facts.st_blksize),
                              static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
  const std::uint64_t first = offset / page * page;
  const std::uint64_t length = (offset + bytes + page - 1) / page * page - first;
  void* const mapped = mmap(nullptr, length, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd.get(),
                            static_cast<off_t>(first));
  if (mapped == MAP_FAILED) {
    return refusal_by_system("cannot map " + std::to_string(length) + " bytes of a registered file",
                             errno);
  }
  return std::shared_ptr<const FileView>(
      new FileView({static_cast<std::byte*>(mapped), length}, offset - first, bytes));
}

FileView::~FileView() { munmap(mapped_.data(), mapped_.size()); }

}  // namespace unisono::shm
