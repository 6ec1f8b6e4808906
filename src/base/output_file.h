// The file that a user names for what a program has worked out, whatever it is.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace unisono {

/// Whether write_output() could write there now, before the work whose result it writes. Nothing
/// is changed or made.
Status check_output(const std::string& path);

/// A file gets the text as a whole or, by an error, keeps what it holds; its mode and owner stay,
/// and so do symbolic links that lead to it. What may be written and not replaced so is written in
/// place, where an error may leave a part: a file that has hard links or an access list, and a
/// device or a pipe, which waits for its reader.
Status write_output(const std::string& path, std::string_view text);

}  // namespace unisono
