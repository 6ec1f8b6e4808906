// One target under libFuzzer: UNISONO_FUZZ_TARGET names it. A folder among the arguments that is
// empty gets the target's corpus first.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/target.h"

namespace {

using namespace unisono::fuzz;

const Target& the_target() {
  static const Target found = [] {
    for (const Target& target : all_targets()) {
      if (target.name == UNISONO_FUZZ_TARGET) return target;
    }
    std::fputs("there is no target " UNISONO_FUZZ_TARGET "\n", stderr);
    std::abort();
  }();
  return found;
}

void fill(const std::filesystem::path& folder) {
  int number = 0;
  for (const Bytes& input : the_target().corpus()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  for (int i = 1; i < *count; ++i) {
    const std::filesystem::path path((*arguments)[i]);
    if (std::filesystem::is_directory(path) && std::filesystem::is_empty(path)) {
      fill(path);
      break;
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  try {
    the_target().run({reinterpret_cast<const std::byte*>(data), bytes});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", UNISONO_FUZZ_TARGET, error.what());
    std::abort();
  }
  return 0;
}
