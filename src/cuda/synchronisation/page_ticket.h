// What a rank tells its peers of a page that their streams may write (shared_pages.h). Travels in a
// host collective as it is. A plain value.
#pragma once

#include <cstdint>

namespace unisono::device {

/// Where the page is handed out; id 0: there is none.
struct PageTicket {
  std::uint64_t id = 0;
  char socket[48] = {};
};

}  // namespace unisono::device
