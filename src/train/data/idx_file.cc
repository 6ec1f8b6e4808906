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
constexpr const char* kPacked = ".gz";
constexpr std::string_view kPackage = "dataset-fashion-mnist";

// A package helps only where its folder was looked in.
std::string remedy(const std::string& directory) {
  const std::string other = "name a folder with IDX files by --data DIR";
  if (directory != kFashionMnist) return other;
  return "install the Debian package " + std::string(kPackage) + " (apt install " +
         std::string(kPackage) + ") or " + other;
}

void check_folder(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (fs::is_directory(status)) return;
  const std::string what = status.type() == fs::file_type::not_found ? ": no such folder"
                           : fs::exists(status)                      ? " is not a folder"
                                                                     : ": " + error.message();
  throw std::runtime_error(directory + what + "; " + remedy(directory));
}

std::uint64_t big_endian(const std::uint8_t* bytes) {
  return std::uint64_t{bytes[0]} << 24 | std::uint64_t{bytes[1]} << 16 |
         std::uint64_t{bytes[2]} << 8 | std::uint64_t{bytes[3]};
}

// What a file of the set is called without a prefix: both spellings, plain and gzip.
std::vector<std::string> names(std::string_view part, std::string_view kind) {
  std::vector<std::string> all;
  for (const char* separator : {"-", "."}) {
    for (const char* extension : {"", kPacked}) {
      all.push_back(std::string(part) + "-" + (kind == "images" ? "images" : "labels") + separator +
                    (kind == "images" ? "idx3" : "idx1") + "-ubyte" + extension);
    }
  }
  return all;
}

// A file with exactly such a name, or else the only one with a prefix before it: the plain one,
// where it is there packed too.
std::optional<std::string> find_file(const std::string& directory,
                                     const std::vector<std::string>& names) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const std::string& name : names) {
    if (fs::exists(fs::path(directory) / name, error)) return (fs::path(directory) / name).string();
  }
  std::optional<std::string> found;
  const fs::directory_iterator entries(directory, error);
  if (error) throw std::runtime_error(directory + ": " + error.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string file = entry.path().filename().string();
    for (const std::string& name : names) {
      if (!file.ends_with("-" + name)) continue;
      const std::string path = entry.path().string();
      if (found && path == *found + kPacked) continue;  // the same file, packed
      if (found && *found != path + kPacked) {
        throw std::runtime_error(directory + " holds several data sets (" + *found + " and " +
                                 path + "); put the one that is meant into a folder of its own");
      }
      found = path;
    }
  }
  return found;
}

// What stands before the names of all sets.
std::string prefix_of(const std::string& path, std::string_view part, std::string_view kind) {
  const std::string file = std::filesystem::path(path).filename().string();
  return file.substr(0, file.rfind(std::string(part) + "-" + std::string(kind)));
}

// Their counts may agree all the same.
void check_is_one_set(const std::string& directory, const IdxPaths& paths, std::string_view part) {
  if (prefix_of(paths.images, part, "images") == prefix_of(paths.labels, part, "labels")) return;
  throw std::runtime_error(directory + " holds images of one data set and labels of another (" +
                           paths.images + " and " + paths.labels + "); complete the one that is " +
                           "meant or " + remedy(directory));
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
  std::uint64_t bytes = 1;
  bool is_beyond = false;
  for (int i = 0; i < dimensions; ++i) {
    stream.read(word);
    extents.push_back(big_endian(word.data()));
    is_beyond |= __builtin_mul_overflow(bytes, extents.back(), &bytes);
  }
  is_beyond |= __builtin_add_overflow(bytes, header, &bytes);
  if (is_beyond || bytes > stream.bytes_max()) {
    const std::string held = std::to_string(stream.bytes_max()) + " bytes";
    fail((stream.is_gzip() ? "a compressed file of its size holds at most " + held : held) +
         ", but the header announces " + (is_beyond ? "more than 2^64" : std::to_string(bytes)) +
         ": cut short; copy it again");
  }
  if (!stream.is_gzip() && bytes < stream.bytes_max()) {
    fail("is longer than the " + std::to_string(bytes) + " bytes that its header announces");
  }
  return extents;
}

IdxPaths find_idx_files(const std::string& directory, bool is_test) {
  const std::vector<std::string_view> parts = is_test
                                                  ? std::vector<std::string_view>{"t10k", "test"}
                                                  : std::vector<std::string_view>{"train"};
  check_folder(directory);
  IdxPaths paths;
  for (const std::string_view part : parts) {
    if (const auto images = find_file(directory, names(part, "images"))) paths.images = *images;
    if (const auto labels = find_file(directory, names(part, "labels"))) paths.labels = *labels;
    if (paths.images.empty() && paths.labels.empty()) continue;
    if (paths.images.empty() || paths.labels.empty()) break;
    check_is_one_set(directory, paths, part);
    return paths;
  }
  const bool is_empty = paths.images.empty() && paths.labels.empty();
  const std::string images = names(parts[0], "images")[0] + "[.gz]";
  const std::string labels = names(parts[0], "labels")[0] + "[.gz]";
  const std::string missing = is_empty ? "no IDX files (" + images + ", " + labels + ")"
                                       : "no " + (paths.images.empty() ? images : labels);
  throw std::runtime_error(directory + " holds " + missing + "; " + remedy(directory));
}

}  // namespace unisono::train
