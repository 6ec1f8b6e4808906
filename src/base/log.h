// One logger for the library: level from UNISONO_LOG, lines prefixed with the rank. Set-up and
// failure paths only; never on the hot path. An error is logged once, where it is classified.
#pragma once

#include <string_view>

namespace unisono::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// An observer for tests, which fail on a line that they do not expect: nothing else shows that the
/// library warned. It sees every message at or above kWarning before it is written. Pass nullptr to
/// remove it. Not for concurrent use with logging.
using Hook = void (*)(Level level, std::string_view message);
void set_hook(Hook hook);

void set_level(Level level);
void write(Level level, std::string_view message);
inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace unisono::log
