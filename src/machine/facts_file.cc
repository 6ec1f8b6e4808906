#include "machine/facts_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/errno_text.h"
#include "base/fnv.h"
#include "base/replace_file.h"
#include "base/unique_fd.h"

namespace unisono::machine {
namespace {

constexpr std::size_t kFoundMax = 100;

struct FileText {
  std::string text;
  std::time_t changed = 0;
};

Status system_error(const std::string& what, const std::string& path, int error) {
  return Status(ErrorCode::kSystem, what + " " + path + ": " + errno_text(error));
}

// The text of a plain file of this user's; empty where there is none. A pipe does not block.
Result<FileText> read_text(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT) return FileText();
  if (!fd) return system_error("cannot open", path, errno);
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return system_error("cannot look at", path, errno);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) {
    return Status(ErrorCode::kProtocol, path + " is no file of this user");
  }
  std::string text(kTextBytesMax + 1, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", path, errno);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  text.resize(bytes);
  return FileText{std::move(text), facts.st_mtime};
}

}  // namespace

std::string path_of(const std::string& folder, const Identity& identity) {
  const std::string whose = fmt::format("{}user {}\n", text_of(identity), geteuid());
  return fmt::format("{}/machine-{:016x}", folder, fnv1a_64(whose));
}

Result<TrialFacts> read_facts(const Folder& folder, const Identity& identity) {
  UNISONO_TRY(check_folder(folder));
  const std::string path = path_of(folder.path, identity);
  UNISONO_ASSIGN(const FileText file, read_text(path));
  if (file.text.empty()) return TrialFacts{};
  const Result<Facts> facts = parse_facts(file.text);
  if (!facts) return Status(facts.error().code(), path + ": " + facts.error().message());
  if (text_of(facts->identity) != text_of(identity)) {
    return Status(ErrorCode::kProtocol, path + " is of another machine");
  }
  return facts->trials;
}

Status add_facts(const Folder& folder, const Identity& identity, const TrialFacts& learned) {
  UNISONO_TRY(check_folder(folder));
  Facts facts{.identity = identity};
  // What cannot be used is written over.
  if (const Result<TrialFacts> before = read_facts(folder, identity)) facts.trials = *before;
  learn(facts.trials, learned);
  UNISONO_TRY(make_folder(folder));
  const std::string path = path_of(folder.path, identity);
  UNISONO_TRY(replace_file(path, text_of(facts), 0600));
  tidy_folder(folder.path, path);
  return Status();
}

std::vector<FoundFacts> find_facts(const Folder& folder) {
  std::vector<FoundFacts> found;
  if (!check_folder(folder)) return found;
  for (const std::string& name : list_names(folder.path, false)) {
    std::string path = folder.path + "/" + name;
    const Result<FileText> file = read_text(path);
    if (!file) continue;
    Result<Facts> facts = parse_facts(file->text);
    if (!facts) continue;
    const double age = std::difftime(std::time(nullptr), file->changed);
    found.push_back({std::move(path), std::max(0.0, age), std::move(*facts)});
    if (found.size() == kFoundMax) break;
  }
  std::sort(found.begin(), found.end(),
            [](const FoundFacts& a, const FoundFacts& b) { return a.path < b.path; });
  return found;
}

}  // namespace unisono::machine
