#include "rendezvous/meeting/contact.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/errno_text.h"
#include "base/number_text.h"
#include "base/same_user.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kTitle = "unisono rendezvous 1";
constexpr std::size_t kFileBytesMax = 8 << 10;
constexpr std::size_t kIdDigits = 32;
constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
constexpr std::size_t kAddressesMax = 16;
constexpr std::size_t kHostNameBytesMax = 255;

Status bad(const std::string& what) { return {ErrorCode::kRendezvous, what}; }

bool is_word(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

Status read_tcp(std::string_view value, Contact* contact) {
  const std::size_t space = value.find(' ');
  if (space == std::string_view::npos) return bad("a tcp line without a port");
  const std::string_view host = value.substr(0, space), port_text = value.substr(space + 1);
  std::uint16_t port = 0;
  if (!read_number(port_text, &port) || port == 0 || !is_word(host, kHostNameBytesMax) ||
      contact->tcp.size() >= kAddressesMax) {
    return bad("a malformed tcp line");
  }
  contact->tcp.emplace_back(host, port);
  return {};
}

Status read_line(std::string_view word, std::string_view value, Contact* contact) {
  if (word == "job" && is_word(value, kIdDigits) && value.size() == kIdDigits) {
    contact->job_id = value;
    return {};
  }
  if (word == "key" && value.size() == 64) {
    // Any other text of that length would be hashed, and a damaged key only be noticed as a wrong
    // one.
    if (value.find_first_not_of(kHexDigits) != std::string_view::npos) {
      return bad("a malformed key line");
    }
    auto key = JobKey::from_text(value);
    if (!key) return key.error();
    contact->key = *key;
    contact->has_key = true;
    return {};
  }
  if (word == "unix" && is_word(value, 100)) {
    contact->unix_name = value;
    return {};
  }
  if (word == "tcp") return read_tcp(value, contact);
  return bad(fmt::format("a malformed line that begins with '{}'", word.substr(0, 16)));
}

}  // namespace

std::string random_id() { return random_hex(kIdDigits); }

SecretText to_text(const Contact& contact) {
  SecretText text(fmt::format("{}\njob {}\n", kTitle, contact.job_id));
  if (contact.has_key) {
    text.append("key ");
    text.append(contact.key.to_hex().view());
    text.append("\n");
  }
  if (!contact.unix_name.empty()) text.append(fmt::format("unix {}\n", contact.unix_name));
  for (const auto& [host, port] : contact.tcp) text.append(fmt::format("tcp {} {}\n", host, port));
  text.append("end\n");
  return text;
}

Result<Contact> contact_from_text(std::string_view text) {
  if (text.size() > kFileBytesMax) return bad("too long to be a rendezvous file");
  Contact contact;
  bool first = true;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos) break;
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline + 1);
    if (std::exchange(first, false)) {
      if (line != kTitle) return bad("not a rendezvous file of this version of unisono");
      continue;
    }
    if (line == "end") {
      if (!text.empty() || contact.job_id.empty()) break;
      return contact;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return bad("a malformed line");
    UNISONO_TRY(read_line(line.substr(0, space), line.substr(space + 1), &contact));
  }
  return bad("an incomplete rendezvous file");
}

Status write_contact_file(const std::string& path, const Contact& contact) {
  // One name for all jobs, so that what a killed rank 0 left half-way goes with the next start.
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());
  const auto failed = [&](const std::string& why) {
    ::unlink(temporary.c_str());
    return bad(
        fmt::format("cannot write the rendezvous file '{}': {}; choose a directory that all "
                    "ranks see and may write",
                    path, why));
  };
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                     S_IRUSR | S_IWUSR));
  if (!fd) return failed(errno_text(errno));
  const int error = write_all(fd.get(), to_text(contact).view());
  if (error != 0) return failed(errno_text(error));
  // Network file systems report a full disk as late as here.
  if (::close(fd.release()) != 0) return failed(errno_text(errno));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return failed(errno_text(errno));
  return {};
}

Result<Contact> read_contact_file(const std::string& path) {
  // O_NONBLOCK: a FIFO under that name must not block.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return bad(fmt::format("cannot read '{}': {}", path, errno_text(errno)));
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return bad(fmt::format("'{}' is no regular file", path));
  }
  if (const Status own = check_same_user(about.st_uid, "the file"); !own) {
    return bad(fmt::format("'{}': {}", path, own.message()));
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return bad(fmt::format("'{}' is not private to uid {} (owner {}, mode {:o})", path, ::geteuid(),
                           about.st_uid, about.st_mode & 0777));
  }
  SecretText text;
  text.resize(kFileBytesMax + 1);
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return bad(fmt::format("cannot read '{}': {}", path, errno_text(errno)));
    if (count == 0) break;
    bytes += static_cast<std::size_t>(count);
  }
  text.resize(bytes);
  auto contact = contact_from_text(text.view());
  if (!contact) return bad(fmt::format("'{}': {}", path, contact.error().message()));
  return contact;
}

void remove_contact_file(const std::string& path, const std::string& job_id) {
  const auto is_ours = [&](const std::string& name) {
    const auto contact = read_contact_file(name);
    return contact && contact->job_id == job_id;
  };
  if (!is_ours(path)) return;
  // Taken away before it is judged: the next job may have replaced it since.
  const std::string aside = path + ".old";
  if (std::rename(path.c_str(), aside.c_str()) != 0) return;
  // Put back unless a still newer one is there. Where there are no hard links, it is anyhow.
  if (!is_ours(aside) && ::link(aside.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    static_cast<void>(std::rename(aside.c_str(), path.c_str()));
  }
  ::unlink(aside.c_str());
}

}  // namespace unisono::rendezvous
