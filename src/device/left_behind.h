// What streams of the device may still touch after all that owned it has been closed: kept until
// the process ends, and never destroyed. Any thread.
#pragma once

#include <memory>

namespace unisono::device {

void leave_behind(std::shared_ptr<void> what);

}  // namespace unisono::device
