// What ptxas said of the kernels: in the build's folder, or in the folder `images` beside the
// program where bench/gpu/run.sh has brought it to another machine.
#pragma once

#include <filesystem>
#include <string>

namespace unisono::test {

inline std::string kernel_report(const std::string& build_folder, const std::string& family) {
  const std::string name = "kernels_" + family + ".ptxas";
  const std::filesystem::path built = std::filesystem::path(build_folder) / name;
  if (std::filesystem::exists(built)) return built;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "images" / name;
}

}  // namespace unisono::test
