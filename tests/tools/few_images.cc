#include "few_images.h"

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace unisono::test {
namespace {

// The first `items` of an IDX file, whose first extent says how many there are.
void cut(const std::string& name, std::uint32_t items, std::size_t header_bytes,
         std::size_t item_bytes, const TemporaryFolder& folder) {
  const std::string source = std::string(kAllImages) + "/" + name + ".gz";
  std::string bytes(header_bytes + items * item_bytes, '\0');
  const gzFile file = gzopen(source.c_str(), "rb");
  const int read =
      file == nullptr ? -1 : gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  if (file != nullptr) gzclose(file);
  if (read != static_cast<int>(bytes.size())) throw std::runtime_error("cannot read " + source);
  for (int i = 0; i < 4; ++i) {
    bytes[4 + static_cast<std::size_t>(i)] = static_cast<char>(items >> (24 - 8 * i));
  }
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

}  // namespace

const std::string* few_images() {
  if (!std::filesystem::exists(kAllImages)) return nullptr;
  static const TemporaryFolder folder;
  static const bool made = [] {
    cut("train-images-idx3-ubyte", 6000, 16, 28 * 28, folder);
    cut("train-labels-idx1-ubyte", 6000, 8, 1, folder);
    cut("t10k-images-idx3-ubyte", 1000, 16, 28 * 28, folder);
    cut("t10k-labels-idx1-ubyte", 1000, 8, 1, folder);
    return true;
  }();
  static_cast<void>(made);
  return &folder.path();
}

std::string few_images_for(const std::string& arguments) {
  for (const char* other : {"--data", "--model gpt"}) {
    if (arguments.find(other) != std::string::npos) return {};
  }
  return few_images() == nullptr ? "" : " --data " + *few_images();
}

}  // namespace unisono::test
