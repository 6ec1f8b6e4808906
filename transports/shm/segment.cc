#include "transports/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/errno_text.h"
#include "base/memfd.h"
#include "base/per_process.h"

namespace unisono::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status system_error(const std::string& what, int error) {
  const bool scarce = error == ENOMEM || error == ENOSPC || is_out_of_descriptors(error);
  return Status(scarce ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
                what + ": " + errno_text(error));
}

// What this process has of memfds, by inode. The number is not reused while it is mapped or open.
using Inode = std::pair<dev_t, ino_t>;
struct Registry {
  std::mutex mutex;
  std::map<Inode, std::weak_ptr<Mapping>> mappings;
  std::map<Inode, std::weak_ptr<const UniqueFd>> descriptors;
};
constinit PerProcess<Registry> known_memfds;

Result<struct stat> facts_of(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return system_error("cannot read the size of a memfd", errno);
  return facts;
}

// The size of a peer's memfd, once it is known to stay.
Result<std::size_t> sealed_bytes(int fd, std::size_t bytes_min, std::size_t bytes_max) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(ErrorCode::kProtocol,
                  "shared memory from a peer is not a memfd of sealed size; it was not mapped");
  }
  UNISONO_ASSIGN(const struct stat facts, facts_of(fd));
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes < bytes_min || bytes > bytes_max) {
    return Status(ErrorCode::kProtocol, "shared memory from a peer has " + std::to_string(bytes) +
                                            " bytes, expected " + std::to_string(bytes_min) +
                                            " to " + std::to_string(bytes_max));
  }
  return bytes;
}

// What `known` holds for the memfd of `facts`, which stays empty until the caller fills it.
template <typename T>
std::weak_ptr<T>& entry_of(std::map<Inode, std::weak_ptr<T>>& known, const struct stat& facts) {
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  return known[{facts.st_dev, facts.st_ino}];
}

}  // namespace

Result<PeerMemfd> keep_once(UniqueFd fd) {
  UNISONO_ASSIGN(const struct stat facts, facts_of(fd.get()));
  Registry& registry = known_memfds.get();
  const std::lock_guard lock(registry.mutex);
  std::weak_ptr<const UniqueFd>& known = entry_of(registry.descriptors, facts);
  if (PeerMemfd kept = known.lock()) return kept;
  auto kept = std::make_shared<const UniqueFd>(std::move(fd));
  known = kept;
  return PeerMemfd(kept);
}

// Writable where the mapping keeps its descriptor.
Result<std::shared_ptr<Mapping>> Mapping::map(int fd, std::size_t bytes, UniqueFd kept) {
  UNISONO_ASSIGN(const struct stat facts, facts_of(fd));
  Registry& registry = known_memfds.get();
  const std::lock_guard lock(registry.mutex);
  std::weak_ptr<Mapping>& known = entry_of(registry.mappings, facts);
  if (auto mapping = known.lock()) return mapping;
  const int protection = kept ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
  }
  // The kernel allocates what it dumps: every page of a sparse memfd.
  madvise(base, bytes, MADV_DONTDUMP);
  std::shared_ptr<Mapping> mapping(
      new Mapping(std::move(kept), static_cast<std::byte*>(base), bytes));
  known = mapping;
  return mapping;
}

Result<std::shared_ptr<Mapping>> Mapping::create(const char* name, std::size_t bytes) {
  // Beyond the limit ftruncate() would end the process by SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return Status(ErrorCode::kOutOfResources,
                  "a memfd of " + std::to_string(bytes) + " bytes exceeds the file size limit of " +
                      std::to_string(limit.rlim_cur) + " bytes; raise it (ulimit -f)");
  }
  UniqueFd fd = make_memfd(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (!fd) return system_error("cannot create shared memory (memfd_create)", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("cannot make a memfd of " + std::to_string(bytes) + " bytes", errno);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return system_error("cannot seal a memfd", errno);
  const int number = fd.get();
  return map(number, bytes, std::move(fd));
}

Result<std::shared_ptr<Mapping>> Mapping::attach(UniqueFd fd, std::size_t bytes_min,
                                                 std::size_t bytes_max) {
  const int number = fd.get();
  UNISONO_ASSIGN(const std::size_t bytes, sealed_bytes(number, bytes_min, bytes_max));
  return map(number, bytes, std::move(fd));
}

Result<std::shared_ptr<Mapping>> Mapping::view(int fd, std::size_t bytes_min,
                                               std::size_t bytes_max) {
  UNISONO_ASSIGN(const std::size_t bytes, sealed_bytes(fd, bytes_min, bytes_max));
  return map(fd, bytes, UniqueFd());
}

Mapping::~Mapping() { munmap(base_, bytes_); }

// A signal makes the kernel give back what the call has reserved so far. Where signals come faster
// than a long range is reserved, as a profiler's do, no call for all of it would ever end: half of
// it is asked for then, until it is one page.
Status reserve_pages(int fd, std::size_t offset, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // Pieces share no page: else a piece that is given back would take the other's page with it.
  std::size_t at = offset / page * page;
  const std::size_t end = offset + bytes;
  std::size_t piece = round_up(end - at, page);
  while (at < end) {
    const std::size_t now = std::min(piece, end - at);
    if (fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(now)) == 0) {
      at += now;
    } else if (errno == EINTR) {
      piece = round_up(now / 2, page);
    } else {
      return system_error("cannot reserve " + std::to_string(bytes) +
                              " bytes of shared memory; lower the memory use or the limit of the "
                              "control group",
                          errno);
    }
  }
  return {};
}

Status Mapping::reserve(std::size_t offset, std::size_t bytes) const {
  return reserve_pages(fd_.get(), offset, bytes);
}

void Mapping::populate(std::size_t offset, std::size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
  const std::size_t before = offset % static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  madvise(base_ + offset - before, bytes + before, MADV_POPULATE_WRITE);
#else
  static_cast<void>(offset), static_cast<void>(bytes);
#endif
}

void Mapping::punch(std::size_t offset, std::size_t bytes) const {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

}  // namespace unisono::shm
