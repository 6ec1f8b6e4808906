// What /proc says of a process of this host.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

struct ProcessFacts {
  char state = 0;  ///< as ps shows it, 'T': stopped; 0: there is no such process to be seen
  int parent = 0;
  int threads = 0;
  std::uint64_t start = 0;  ///< clock ticks after boot: with the pid it names the process for good
};

/// The process has ended, and its parent has not looked. A first thread that has ended may leave
/// others behind.
inline bool is_corpse(const ProcessFacts& facts) {
  return facts.state == 'X' || (facts.state == 'Z' && facts.threads <= 1);
}

/// Reads the text of /proc/PID/stat, whatever the program's name.
ProcessFacts parse_process_facts(std::string_view stat);
ProcessFacts facts_of_process(int pid);
/// The inode of this process' own; 0: not to be seen.
std::uint64_t pid_namespace();

/// No process of this number, in this process' own namespace, lives: for certain.
bool has_ended(int pid);

/// One word that names this process for good, on whichever host; empty: /proc shows too little, or
/// that of another namespace.
std::string process_name();
inline constexpr std::size_t kProcessNameBytesMax = 192;
/// That process has ended, for certain: seen from here. Any text may be given.
bool has_ended(std::string_view process);

}  // namespace unisono
