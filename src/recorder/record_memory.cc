#include "recorder/record_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/errno_text.h"
#include "base/memfd.h"
#include "base/process_facts.h"
#include "recorder/record_format.h"

namespace unisono::recorder {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

std::uint64_t claim_of(int pid, std::uint64_t start) {
  return start << 32 | static_cast<std::uint32_t>(pid);
}

// Several ranks may descend from one child of the launcher: the memory is the first one's, until
// that is gone or has closed it, which sets the word to 0.
bool claim(std::byte* memory) {
  const std::atomic_ref word(reinterpret_cast<Header*>(memory)->claim);
  std::uint64_t owner = word.load(std::memory_order_acquire);
  const int owner_pid = static_cast<int>(owner & 0xffff'ffff);
  if (owner != 0 && claim_of(owner_pid, facts_of_process(owner_pid).start) == owner) return false;
  const std::uint64_t own = claim_of(::getpid(), facts_of_process(::getpid()).start);
  return word.compare_exchange_strong(owner, own, std::memory_order_acq_rel);
}

// All but the claim; a reader sees that the record before is no more.
void wipe(std::byte* memory) {
  auto& header = *reinterpret_cast<Header*>(memory);
  std::atomic_ref(header.magic).store(0, std::memory_order_release);
  constexpr std::size_t kAt = offsetof(Header, claim), kBehind = kAt + sizeof header.claim;
  std::memset(memory, 0, kAt);
  std::memset(memory + kBehind, 0, kRecordBytes - kBehind);
}

// The number may mean anything in a process that did not get the launcher's descriptors.
UniqueFd take_handed(const RecordPlace& place) {
  if (place.handed_fd < 0) return UniqueFd();
  struct stat facts {};
  if (::fstat(place.handed_fd, &facts) != 0 || facts.st_ino != place.inode ||
      facts.st_size != static_cast<off_t>(kRecordBytes)) {
    return UniqueFd();
  }
  const int seals = ::fcntl(place.handed_fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return UniqueFd();
  // What this process starts is no rank of the launcher.
  ::fcntl(place.handed_fd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(::fcntl(place.handed_fd, F_DUPFD_CLOEXEC, 0));
}

Status refuse_folder(std::string_view variable, const std::string& folder, const std::string& why) {
  return Status(ErrorCode::kSystem, std::string(variable) + "=" + folder + ": " + why +
                                        "; name a directory that this user can write to");
}

Result<UniqueFd> create_record(const std::string& folder, const std::string& name) {
  constexpr std::string_view kVariable = "UNISONO_RECORDER";
  UNISONO_ASSIGN(UniqueFd file, create_rank_file(kVariable, folder, name));
  // A full disk is an error here, and would be a signal in the middle of a call.
  int error = 0;
  do {
    error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(kRecordBytes));
  } while (error == EINTR);
  if (error == 0) return file;
  ::unlink((folder + "/" + name).c_str());
  return refuse_folder(
      kVariable, folder,
      "no room for " + std::to_string(kRecordBytes) + " bytes: " + errno_text(error));
}

}  // namespace

// Only ever a new file: what is there may be a link, or another user's.
Result<UniqueFd> create_rank_file(std::string_view variable, const std::string& folder,
                                  const std::string& name) {
  constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;
  UniqueFd at(::open(folder.c_str(), kFolder));
  // Other ranks make it at the same time.
  if (!at && errno == ENOENT && (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST)) {
    at.reset(::open(folder.c_str(), kFolder));
  }
  if (!at) return refuse_folder(variable, folder, errno_text(errno));
  constexpr int kNew = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd file(::openat(at.get(), name.c_str(), kNew, 0600));
  if (!file && errno == EEXIST && ::unlinkat(at.get(), name.c_str(), 0) == 0) {
    file.reset(::openat(at.get(), name.c_str(), kNew, 0600));
  }
  if (file) return file;
  return refuse_folder(variable, folder, "no file " + name + " in it: " + errno_text(errno));
}

Result<UniqueFd> make_sealed_memory() {
  UniqueFd fd = make_memfd(kMemoryName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(kRecordBytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return Status(ErrorCode::kSystem, "no memory for a rank's record: " + errno_text(errno));
  }
  return fd;
}

std::string announce(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return "";
  return std::to_string(fd) + ":" + std::to_string(facts.st_ino);
}

bool parse_announcement(const std::string& text, int* fd, std::uint64_t* inode) {
  const char* const end = text.data() + text.size();
  int number = -1;
  std::uint64_t its_inode = 0;
  const auto first = std::from_chars(text.data(), end, number);
  if (first.ec != std::errc() || number < 0 || first.ptr == end || *first.ptr != ':') return false;
  const auto second = std::from_chars(first.ptr + 1, end, its_inode);
  if (second.ec != std::errc() || second.ptr != end) return false;
  *fd = number;
  *inode = its_inode;
  return true;
}

Result<RecordMemory> RecordMemory::make(const RecordPlace& place, const std::string& name) {
  if (!place.setting.folder.empty()) {
    UNISONO_ASSIGN(UniqueFd file, create_record(place.setting.folder, name));
    return map(std::move(file));
  }
  if (UniqueFd handed = take_handed(place)) {
    UNISONO_ASSIGN(RecordMemory memory, map(std::move(handed)));
    if (claim(memory.data())) {
      wipe(memory.data());
      return memory;
    }
  }
  UNISONO_ASSIGN(UniqueFd own, make_sealed_memory());
  return map(std::move(own));
}

Result<RecordMemory> RecordMemory::map(UniqueFd fd) {
  void* const data = ::mmap(nullptr, kRecordBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Status(ErrorCode::kSystem, "cannot map a rank's record: " + errno_text(errno));
  }
  return RecordMemory(std::move(fd), static_cast<std::byte*>(data));
}

RecordMemory::RecordMemory(RecordMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)) {}

RecordMemory::~RecordMemory() {
  if (data_ != nullptr) ::munmap(data_, kRecordBytes);
}

}  // namespace unisono::recorder
