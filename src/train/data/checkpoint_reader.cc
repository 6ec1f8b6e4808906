#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "train/data/checkpoint_file.h"
#include "train/data/checkpoint_format.h"
#include "train/data/input_file.h"

namespace unisono::train {

namespace {

// Of a tensor: more than any model has.
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 48;

// Reads on and on. Every length is held against what is left of the file before room is made.
class CheckedFile {
 public:
  explicit CheckedFile(const std::string& path);

  template <typename T>
  T number() {
    T value;
    take(&value, sizeof value);
    return little_endian(value);
  }
  std::string string();
  std::vector<float> floats(std::uint64_t count);
  Shape shape();
  /// How many things follow that take at least `bytes` each.
  std::uint32_t count(std::size_t bytes);
  void expect_end();
  [[noreturn]] void fail(const std::string& what) const { file_.fail(what); }

 private:
  void check_header();
  void take(void* out, std::size_t bytes);
  void fill();

  InputFile file_;
  std::uint64_t left_;  ///< of the file, not taken yet
  std::vector<std::uint8_t> block_;
  std::size_t block_at_ = 0;
  std::uint32_t announced_checksum_ = 0;
  uLong checksum_ = crc32(0, nullptr, 0);
};

CheckedFile::CheckedFile(const std::string& path) : file_(path), left_(file_.bytes()) {
  check_header();
}

void CheckedFile::check_header() {
  char magic[8] = {};
  if (file_.bytes() >= kHeaderBytes) take(magic, sizeof magic);
  if (kCheckpointMagic != std::string_view(magic, sizeof magic)) fail("not a checkpoint");
  const auto version = number<std::uint32_t>();
  if (version != kCheckpointVersion) {
    fail("a checkpoint of version " + std::to_string(version) + "; this program reads version " +
         std::to_string(kCheckpointVersion) + "; " +
         (version > kCheckpointVersion
              ? "read it with a newer unisono"
              : "go on with the unisono that wrote it, or train anew with this one"));
  }
  announced_checksum_ = number<std::uint32_t>();
  checksum_ = crc32(0, nullptr, 0);
  const auto size = number<std::uint64_t>();
  if (size != file_.bytes()) {
    fail("has " + std::to_string(file_.bytes()) + " bytes where its header announces " +
         std::to_string(size) + ": it was cut short or added to");
  }
}

void CheckedFile::fill() {
  block_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, left_)));
  block_at_ = 0;
  file_.read(file_.bytes() - left_, block_);
}

void CheckedFile::take(void* out, std::size_t bytes) {
  if (bytes > left_) fail("is damaged: it ends in the middle of a value");
  auto* to = static_cast<std::uint8_t*>(out);
  while (bytes > 0) {
    if (block_at_ == block_.size()) fill();
    const std::size_t part = std::min(bytes, block_.size() - block_at_);
    std::memcpy(to, block_.data() + block_at_, part);
    checksum_ = crc32_z(checksum_, to, part);
    to += part;
    block_at_ += part;
    left_ -= part;
    bytes -= part;
  }
}

std::string CheckedFile::string() {
  std::string text(count(1), '\0');
  take(text.data(), text.size());
  return text;
}

std::vector<float> CheckedFile::floats(std::uint64_t count) {
  if (count > left_ / sizeof(float)) {
    fail("is damaged: it announces " + std::to_string(count) + " values where " +
         std::to_string(left_) + " bytes are left");
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  take(values.data(), values.size() * sizeof(float));
  if constexpr (std::endian::native != std::endian::little) {
    for (float& value : values) value = little_endian(value);
  }
  return values;
}

Shape CheckedFile::shape() {
  const auto dimensions = number<std::uint32_t>();
  if (dimensions > kDimensionsMax) {
    fail("is damaged: a tensor of " + std::to_string(dimensions) + " dimensions");
  }
  Shape shape;
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = number<std::uint64_t>();
    // Each alone too: beside an extent of 0 no product says that another is absurd.
    if (extent > kElementsMax || __builtin_mul_overflow(elements, extent, &elements) ||
        elements > kElementsMax) {
      fail("is damaged: a tensor with an extent of " + std::to_string(extent));
    }
    shape.push_back(static_cast<std::size_t>(extent));
  }
  return shape;
}

std::uint32_t CheckedFile::count(std::size_t bytes) {
  const auto count = number<std::uint32_t>();
  if (count > left_ / bytes) {
    fail("is damaged: it announces " + std::to_string(count) + " things where " +
         std::to_string(left_) + " bytes are left");
  }
  return count;
}

void CheckedFile::expect_end() {
  if (left_ != 0) fail("is damaged: " + std::to_string(left_) + " bytes too many");
  if (static_cast<std::uint32_t>(checksum_) != announced_checksum_) {
    fail("is damaged: its checksum is wrong");
  }
}

std::vector<Checkpoint::NamedTensor> read_tensors(CheckedFile& file) {
  std::vector<Checkpoint::NamedTensor> tensors;
  for (std::uint32_t left = file.count(8); left > 0; --left) {
    Checkpoint::NamedTensor& tensor = tensors.emplace_back();
    tensor.name = file.string();
    tensor.shape = file.shape();
    tensor.values = file.floats(element_count(tensor.shape));
  }
  return tensors;
}

}  // namespace

Checkpoint read_checkpoint_file(const std::string& path) {
  CheckedFile file(path);
  Checkpoint checkpoint;
  checkpoint.model = file.string();
  checkpoint.parameters = read_tensors(file);
  checkpoint.buffers = read_tensors(file);
  checkpoint.optimizer = file.string();
  checkpoint.optimizer_steps = file.number<std::uint64_t>();
  for (std::uint32_t left = file.count(12); left > 0; --left) {
    Checkpoint::NamedArray& array = checkpoint.optimizer_state.emplace_back();
    array.name = file.string();
    array.values = file.floats(file.number<std::uint64_t>());
  }
  checkpoint.epoch = file.number<std::uint64_t>();
  checkpoint.step = file.number<std::uint64_t>();
  checkpoint.step_samples = file.number<std::uint64_t>();
  checkpoint.order = file.string();
  if (checkpoint.order.size() > kOrderBytesMax) {
    file.fail("is damaged: the order of its samples has a name of " +
              std::to_string(checkpoint.order.size()) + " bytes");
  }
  checkpoint.sampler_seed = file.number<std::uint64_t>();
  file.expect_end();
  return checkpoint;
}

}  // namespace unisono::train
