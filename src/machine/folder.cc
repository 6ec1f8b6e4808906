#include "machine/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/errno_text.h"

namespace unisono::machine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "machine-";
constexpr std::size_t kDigits = 16;
constexpr std::string_view kPart = ".new-";
constexpr int kNamesMax = 4096;
constexpr std::time_t kPartSeconds = 3600;

// Others may keep theirs in the same folder.
bool is_own_file(const std::string& path, struct stat* facts) {
  return lstat(path.c_str(), facts) == 0 && S_ISREG(facts->st_mode) && facts->st_uid == geteuid();
}

Status unsupported(const std::string& why) {
  return Status(ErrorCode::kUnsupported, why + "; UNISONO_CACHE can name another folder");
}

// What there is of the way to the folder tells: a link may lead to another file system.
bool lies_on_network(const Folder& folder) {
  fs::path at = folder.path;
  struct statfs facts {};
  while (statfs(at.c_str(), &facts) != 0) {
    if (errno != ENOENT || at.native().size() <= folder.base.size()) return false;
    at = at.parent_path();
  }
  return is_network_file_system(facts.f_type);
}

}  // namespace

bool is_network_file_system(std::int64_t type) {
  // NFS, SMB, CIFS, SMB2, Lustre, FUSE, AFS, Ceph, Coda, GPFS, BeeGFS, OCFS2, GFS2, 9P, PanFS,
  // OrangeFS and what autofs has yet to mount.
  constexpr std::array<std::uint32_t, 17> kTypes{
      0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x0bd00bd0, 0x65735546,
      0x5346414f, 0x00c36400, 0x73757245, 0x47504653, 0x19830326, 0x7461636f,
      0x01161970, 0x01021997, 0xaad7aaea, 0x20030528, 0x0187};
  return std::find(kTypes.begin(), kTypes.end(), static_cast<std::uint32_t>(type)) != kTypes.end();
}

Status check_folder(const Folder& folder) {
  struct stat facts {};
  if (folder.base.empty()) {
    const bool is_other = stat(folder.path.c_str(), &facts) == 0 && !S_ISDIR(facts.st_mode);
    return is_other ? unsupported(folder.path + " is no folder") : Status();
  }
  if (stat(folder.base.c_str(), &facts) != 0) {
    return unsupported("cannot look at " + folder.base + ": " + errno_text(errno));
  }
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid()) {
    return unsupported(folder.base + " is no folder of this user's");
  }
  if (lies_on_network(folder)) return unsupported(folder.path + " is on a network file system");
  return Status();
}

Status make_folder(const Folder& folder) {
  std::vector<std::string> missing{folder.path};
  for (fs::path at = fs::path(folder.path).parent_path();
       !folder.base.empty() && at.native().size() > folder.base.size(); at = at.parent_path()) {
    missing.push_back(at);
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    if (mkdir(at->c_str(), 0700) == 0 || errno == EEXIST) continue;
    const bool is_full = errno == ENOSPC || errno == EDQUOT;
    return Status(is_full ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
                  "cannot make the folder " + *at + ": " + errno_text(errno));
  }
  return Status();
}

bool can_write(const Folder& folder) {
  fs::path at = folder.path;
  // A file in its place is no folder.
  while (faccessat(AT_FDCWD, (at / ".").c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    const bool may_be_made =
        folder.base.empty() ? at == folder.path : at.native().size() > folder.base.size();
    if (errno != ENOENT || !may_be_made) return false;
    at = at.parent_path();
  }
  return true;
}

bool is_facts_name(std::string_view name) {
  return name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

std::vector<std::string> list_names(const std::string& folder, bool parts) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (int looks = 0; !error && at != fs::directory_iterator() && looks < kNamesMax; ++looks) {
    std::string name = at->path().filename();
    const std::size_t end = std::min(name.find(kPart), name.size());
    const bool is_part = end != name.size();
    if (is_part == parts && is_facts_name(std::string_view(name).substr(0, end))) {
      names.push_back(std::move(name));
    }
    at.increment(error);
  }
  return names;
}

void tidy_folder(const std::string& folder, const std::string& kept) {
  struct stat facts {};
  for (const std::string& name : list_names(folder, true)) {
    const std::string path = folder + "/" + name;
    const bool is_own = is_own_file(path, &facts);
    if (is_own && facts.st_mtime < std::time(nullptr) - kPartSeconds) unlink(path.c_str());
  }
  std::vector<std::pair<std::time_t, std::string>> files;
  for (const std::string& name : list_names(folder, false)) {
    const std::string path = folder + "/" + name;
    if (is_own_file(path, &facts) && path != kept) files.emplace_back(facts.st_mtime, path);
  }
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + kFilesMax <= files.size(); ++i) unlink(files[i].second.c_str());
}

}  // namespace unisono::machine
