// What the system says about a failed call, and where descriptors have run out the limit, the need
// and the remedy, which strerror() leaves to the reader.
//
// Thread rule: any thread.
#pragma once

#include <string>

namespace unisono {

/// Errors that more descriptors would mend.
bool is_out_of_descriptors(int error);

std::string errno_text(int error);

}  // namespace unisono
