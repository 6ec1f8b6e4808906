#include "topology/processor_model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sstream>

#include "base/small_file.h"

#endif

namespace unisono::topology {
namespace {

// One line of single blanks.
std::string tidied(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool is_printed = c > ' ' && c <= '~';
    if (is_printed) line += c;
    if (!is_printed && !line.empty() && line.back() != ' ') line += ' ';
  }
  line.resize(std::min(line.size(), kProcessorModelMax));
  while (line.ends_with(' ')) line.pop_back();
  return line.empty() ? "unknown" : line;
}

#if defined(__x86_64__)
// The instruction and not /proc/cpuinfo, which some kernels take 20 ms to open.
std::string model_text() {
  std::string text;
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    std::array<unsigned, 4> words{};
    if (__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3]) == 0) continue;
    char part[sizeof words];
    std::memcpy(part, words.data(), sizeof part);
    text.append(part, strnlen(part, sizeof part));
  }
  unsigned signature = 0, b = 0, c = 0, d = 0;
  __get_cpuid(1, &signature, &b, &c, &d);
  const unsigned family = (signature >> 8) & 15, model = (signature >> 4) & 15;
  const bool is_extended = family == 15 || family == 6;
  return text + ", family " + std::to_string(family == 15 ? 15 + (signature >> 20 & 255) : family) +
         " model " + std::to_string(is_extended ? (signature >> 16 & 15) * 16 + model : model) +
         " stepping " + std::to_string(signature & 15);
}
#else
// The lines of the first processor that say what it is.
std::string model_text() {
  constexpr std::size_t kBytesMax = 4096;
  std::istringstream lines(read_small_file("/proc/cpuinfo", kBytesMax));
  std::string text;
  for (std::string line; std::getline(lines, line) && (!line.empty() || text.empty());) {
    for (const char* name : {"model name", "CPU implementer", "CPU variant", "CPU part",
                             "CPU revision", "cpu\t", "uarch"}) {
      if (line.starts_with(name)) text += (text.empty() ? "" : ", ") + line;
    }
  }
  return text;
}
#endif

}  // namespace

std::string read_processor_model() { return tidied(model_text()); }

}  // namespace unisono::topology
