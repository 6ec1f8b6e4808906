// The folder of the files of facts. What the user named is taken as it is. The one that jobs take
// where nobody named one has to be this user's own and on a disk of this machine: a job should wait
// for no file server, and nodes with one home have facts of their own.
//
// Thread rule: any thread, any number of processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace unisono::machine {

struct Folder {
  Folder(std::string path, std::string base = "")  // NOLINT(google-explicit-constructor)
      : path(std::move(path)), base(std::move(base)) {}

  std::string path;
  std::string base;  ///< the user's folder, as $HOME, that `path` was made of; empty: it was named
};

/// kUnsupported, with the reason, where jobs do not read or write the folder.
Status check_folder(const Folder& folder);

/// Makes it with mode 0700, and what is missing between `base` and it; kSystem, kOutOfResources.
Status make_folder(const Folder& folder);

/// Whether files can be made there as things are, after make_folder() where it is missing.
bool can_write(const Folder& folder);

/// Whether a type of statfs() is that of another machine's files, or of a user's program that may
/// serve such.
bool is_network_file_system(std::int64_t type);

/// "machine-<16 hexadecimal digits>"
bool is_facts_name(std::string_view name);

/// What the folder has by such names or, with `parts`, has of such files that are being written.
/// Where there are more than some thousand, not all.
std::vector<std::string> list_names(const std::string& folder, bool parts);

inline constexpr std::size_t kFilesMax = 64;
/// Removes what was being written an hour ago, and the oldest of more than kFilesMax files, but not
/// the one called `kept`.
void tidy_folder(const std::string& folder, const std::string& kept);

}  // namespace unisono::machine
