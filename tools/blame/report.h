// What `unisono blame` prints: a table of the ranks and the verdict, or the same as JSON. Pure
// functions; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "tools/blame/find_records.h"

namespace unisono::blame {

std::string report_text(const Found& found, std::int64_t now_ns, bool coloured);
std::string report_json(const Found& found, std::int64_t now_ns);

}  // namespace unisono::blame
