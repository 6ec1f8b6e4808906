// Writes a whole file at once: a reader finds the old text or the new one, and an error leaves the
// old one as it was.
//
// Thread rule: any thread, any number of processes; of two that write at once one stays.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace unisono {

/// What a new file's name has behind that of the old one, and before NewFile::kDigits digits.
inline constexpr std::string_view kNewFileMark = ".new-";

/// Writes a new file of `mode` (the umask applies) beside `path`, "<path>.new-<16 hexadecimal
/// digits>", and gives it that name. Where a link has the name, the link is replaced.
/// kOutOfResources where the disk is full, kUnsupported where no new file may take the place: the
/// folder is not this user's to write, the file is mounted there, or the new name is too long; else
/// kSystem.
Status replace_file(const std::string& path, std::string_view text, mode_t mode);

/// The same, with mode, owner and group of the file that is replaced; where there is none, 0666.
/// kUnsupported also where this user cannot give them to a new file, or the old one has more that a
/// new one would not have: other names (hard links), or an access list.
Status replace_file_alike(const std::string& path, std::string_view text);

}  // namespace unisono
