// What streams of a device may still touch after all that owned it has been closed: waited for, and
// then kept until the process ends, and never destroyed. Any thread.
#pragma once

#include <chrono>
#include <memory>

namespace unisono::device {

/// How long what has failed or is closed waits for what the driver still does.
inline constexpr std::chrono::milliseconds kReleaseLimit{300};

void leak_until_exit(std::shared_ptr<void> what);

}  // namespace unisono::device
