// How a command ends. A full disk shows only when the bytes leave the buffer, and a command that
// lost its output has not done its job. One thread.
#pragma once

#include <string_view>

#include "base/result.h"

namespace unisono::tools {

/// Flushes standard output; an error where anything so far could not be written.
Status flush_output();

/// Standard output is a pipe that nobody reads any more, as behind `head`.
bool is_reader_gone();

/// Says why on standard error, behind `command`. Returns `exit_status`.
int fail(std::string_view command, const Status& why, int exit_status);

/// For the end of a command: flushes. Returns `status`, or 1 in the place of 0 where something
/// could not be written, after saying why on standard error behind `command`.
int finish_output(std::string_view command, int status);

}  // namespace unisono::tools
