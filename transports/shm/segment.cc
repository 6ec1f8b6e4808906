#include "transports/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace unisono::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status system_error(const std::string& what, int error) {
  const ErrorCode code = error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE
                             ? ErrorCode::kOutOfResources
                             : ErrorCode::kSystem;
  return Status(code, what + ": " + std::strerror(error));
}

// The mappings this process has, by inode. An inode number is not reused while it is mapped.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> mappings;

  static Registry& instance() {
    static Registry registry;
    return registry;
  }
};

}  // namespace

Result<std::shared_ptr<Mapping>> Mapping::map(UniqueFd fd, std::size_t bytes, bool writable) {
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return system_error("cannot read the size of a memfd", errno);
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.mappings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Mapping>& known = registry.mappings[{facts.st_dev, facts.st_ino}];
  if (auto mapping = known.lock()) return mapping;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED) {
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
  }
  std::shared_ptr<Mapping> mapping(
      new Mapping(std::move(fd), static_cast<std::byte*>(base), bytes));
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
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error("cannot create shared memory (memfd_create)", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("cannot make a memfd of " + std::to_string(bytes) + " bytes", errno);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return system_error("cannot seal a memfd", errno);
  return map(std::move(fd), bytes, true);
}

Result<std::shared_ptr<Mapping>> Mapping::attach(UniqueFd fd, std::size_t bytes_min,
                                                 std::size_t bytes_max, bool writable) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(ErrorCode::kProtocol,
                  "shared memory from a peer is not a memfd of sealed size; it was not mapped");
  }
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return system_error("cannot read the size of a memfd", errno);
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes < bytes_min || bytes > bytes_max) {
    return Status(ErrorCode::kProtocol, "shared memory from a peer has " + std::to_string(bytes) +
                                            " bytes, expected " + std::to_string(bytes_min) +
                                            " to " + std::to_string(bytes_max));
  }
  return map(std::move(fd), bytes, writable);
}

Mapping::~Mapping() { munmap(base_, bytes_); }

Status Mapping::reserve(std::size_t offset, std::size_t bytes) const {
  const std::size_t first = offset / kPageBytes * kPageBytes;
  const std::size_t length = round_up(offset + bytes, kPageBytes) - first;
  int rc;
  do {
    rc = fallocate(fd_.get(), 0, static_cast<off_t>(first), static_cast<off_t>(length));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    return system_error("cannot reserve " + std::to_string(length) +
                            " bytes of shared memory; lower the memory use or the limit of the "
                            "control group",
                        errno);
  }
  return {};
}

void Mapping::punch(std::size_t offset, std::size_t bytes) const {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

}  // namespace unisono::shm
