// The IDX format: two zero bytes, the element type (8: unsigned bytes), the number of dimensions,
// each extent as a big-endian u32, then the elements. http://yann.lecun.com/exdb/mnist
#include "train/data/idx_file.h"

#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace unisono::train {

namespace {

constexpr std::uint8_t kUnsignedBytes = 8;
constexpr std::string_view kPackage = "dataset-fashion-mnist";

std::string remedy() {
  return "install the Debian package " + std::string(kPackage) + " (apt install " +
         std::string(kPackage) + ") or name a folder with IDX files by --data DIR";
}

std::uint64_t big_endian(const std::uint8_t* bytes) {
  return std::uint64_t{bytes[0]} << 24 | std::uint64_t{bytes[1]} << 16 |
         std::uint64_t{bytes[2]} << 8 | std::uint64_t{bytes[3]};
}

// What a file of the set is called without a prefix: both spellings, plain and gzip.
std::vector<std::string> names(std::string_view part, std::string_view kind) {
  std::vector<std::string> all;
  for (const char* separator : {"-", "."}) {
    for (const char* extension : {"", ".gz"}) {
      all.push_back(std::string(part) + "-" + (kind == "images" ? "images" : "labels") + separator +
                    (kind == "images" ? "idx3" : "idx1") + "-ubyte" + extension);
    }
  }
  return all;
}

// A file with exactly such a name, or else the only one with a prefix before it.
std::optional<std::string> find_file(const std::string& directory,
                                     const std::vector<std::string>& names) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const std::string& name : names) {
    if (fs::exists(fs::path(directory) / name, error)) return (fs::path(directory) / name).string();
  }
  std::optional<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string file = entry.path().filename().string();
    for (const std::string& name : names) {
      if (!file.ends_with("-" + name)) continue;
      if (found) {
        throw std::runtime_error(directory + " holds several data sets (" + *found + " and " +
                                 entry.path().string() +
                                 "); put the one that is meant into a folder of its own");
      }
      found = entry.path().string();
    }
  }
  return found;
}

}  // namespace

std::vector<std::uint64_t> read_idx_header(ByteStream& stream, int dimensions) {
  const auto fail = [&](const std::string& what) {
    throw std::runtime_error(stream.path() + ": " + what);
  };
  std::array<std::uint8_t, 4> word{};
  stream.read(word);
  if (word[0] != 0 || word[1] != 0) fail("not an IDX file");
  if (word[2] != kUnsignedBytes) {
    fail("its elements are of type " + std::to_string(word[2]) +
         "; only unsigned bytes (8) are read");
  }
  if (word[3] != dimensions) {
    fail("has " + std::to_string(word[3]) + " dimensions where " + std::to_string(dimensions) +
         " belong");
  }
  const std::uint64_t header = 4 + 4 * static_cast<std::uint64_t>(dimensions);
  std::vector<std::uint64_t> extents;
  std::uint64_t elements = 1;
  for (int i = 0; i < dimensions; ++i) {
    stream.read(word);
    extents.push_back(big_endian(word.data()));
    if (__builtin_mul_overflow(elements, extents.back(), &elements) ||
        elements > stream.bytes_max()) {
      fail("its header announces more than a file of its size can hold");
    }
  }
  if (header + elements > stream.bytes_max()) {
    fail("is cut short: its header announces " + std::to_string(header + elements) + " bytes");
  }
  if (!stream.is_gzip() && header + elements < stream.bytes_max()) {
    fail("is longer than the " + std::to_string(header + elements) +
         " bytes that its header announces");
  }
  return extents;
}

IdxPaths find_idx_files(const std::string& directory, bool is_test) {
  const std::vector<std::string_view> parts = is_test
                                                  ? std::vector<std::string_view>{"t10k", "test"}
                                                  : std::vector<std::string_view>{"train"};
  IdxPaths paths;
  for (const std::string_view part : parts) {
    if (const auto images = find_file(directory, names(part, "images"))) paths.images = *images;
    if (const auto labels = find_file(directory, names(part, "labels"))) paths.labels = *labels;
    if (!paths.images.empty() || !paths.labels.empty()) break;
  }
  if (paths.images.empty() || paths.labels.empty()) {
    const std::string missing = names(parts[0], paths.images.empty() ? "images" : "labels")[0];
    throw std::runtime_error("no " + missing + "[.gz] in " + directory + ": " + remedy());
  }
  return paths;
}

}  // namespace unisono::train
