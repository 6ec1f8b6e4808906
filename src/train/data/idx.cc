// Labelled images in IDX files. A record is the label's byte and then the pixels'.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "train/data/idx_file.h"
#include "unisono/train/data.h"

namespace unisono::train {

namespace {

constexpr std::size_t kSampledBytes = 64 * 1024;

std::string plural(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

class IdxSource : public SampleSource {
 public:
  IdxSource(IdxPaths paths, const IdxOptions& options, std::string name);

  std::size_t size() const override { return labels_.size(); }
  int classes() const override { return classes_; }
  Shape input_shape() const override;
  std::size_t targets_per_sample() const override { return 1; }
  std::string describe() const override;
  std::size_t record_bytes_min() const override { return 1 + pixels_; }
  std::size_t record_bytes_max() const override { return 1 + pixels_; }
  bool is_seekable() const override { return !is_gzip_; }
  void load(std::span<const std::size_t> indices, const Take& take) const override;
  void decode(Record record, std::span<float> input,
              std::span<std::int32_t> targets) const override;
  std::size_t length(Record) const override { return pixels_; }
  std::uint64_t fingerprint() const override;

 private:
  void read_labels();
  void check_images();

  IdxPaths paths_;
  bool is_flat_, is_gzip_ = false;
  std::string name_;
  std::size_t rows_ = 0, columns_ = 0, pixels_ = 0;
  int classes_ = 0;
  std::vector<std::uint8_t> labels_;
  std::array<float, 256> values_;  ///< of each pixel value
};

IdxSource::IdxSource(IdxPaths paths, const IdxOptions& options, std::string name)
    : paths_(std::move(paths)), is_flat_(options.is_flat), name_(std::move(name)) {
  if (!(options.deviation > 0) || !std::isfinite(options.deviation) ||
      !std::isfinite(options.mean)) {
    throw std::invalid_argument(
        "images are scaled by (pixel / 255 - mean) / deviation: a mean of " +
        std::to_string(options.mean) + " and a deviation of " + std::to_string(options.deviation) +
        " do not scale");
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i] = (static_cast<float>(i) / 255.0F - options.mean) / options.deviation;
  }
  read_labels();
  check_images();
}

void IdxSource::read_labels() {
  ByteStream stream(paths_.labels);
  const std::uint64_t count = read_idx_header(stream, 1)[0];
  // Blocks are read one by one: what a compressed file announces is believed as far as it delivers.
  constexpr std::uint64_t kBlock = 1 << 20;
  while (labels_.size() < count) {
    const std::size_t done = labels_.size();
    labels_.resize(done + static_cast<std::size_t>(std::min(kBlock, count - done)));
    stream.read(std::span(labels_).subspan(done));
  }
  stream.expect_end();
  for (const std::uint8_t label : labels_) classes_ = std::max(classes_, label + 1);
}

void IdxSource::check_images() {
  ByteStream stream(paths_.images);
  const std::vector<std::uint64_t> extents = read_idx_header(stream, 3);
  is_gzip_ = stream.is_gzip();
  if (extents[0] != labels_.size()) {
    throw std::runtime_error(paths_.images + " has " + plural(extents[0], "image") + " and " +
                             paths_.labels + " " + plural(labels_.size(), "label") +
                             ": they do not belong together");
  }
  if (extents[0] == 0 || extents[1] == 0 || extents[2] == 0) {
    throw std::runtime_error(paths_.images + ": there are no images in it");
  }
  rows_ = static_cast<std::size_t>(extents[1]);
  columns_ = static_cast<std::size_t>(extents[2]);
  pixels_ = rows_ * columns_;
}

Shape IdxSource::input_shape() const {
  return is_flat_ ? Shape{pixels_} : Shape{1, rows_, columns_};
}

std::string IdxSource::describe() const {
  return name_ + ", " + plural(size(), "image") + " " + std::to_string(rows_) + "x" +
         std::to_string(columns_) + ", " + std::to_string(classes_) + " class" +
         (classes_ == 1 ? "" : "es");
}

void IdxSource::load(std::span<const std::size_t> indices, const Take& take) const {
  if (indices.empty()) return;
  ByteStream stream(paths_.images);
  const std::vector<std::uint64_t> extents = read_idx_header(stream, 3);
  if (extents[0] != size() || extents[1] != rows_ || extents[2] != columns_) {
    throw std::runtime_error(paths_.images + " was changed while it was in use");
  }
  std::vector<std::uint8_t> record(record_bytes_max());
  std::size_t at = 0;
  for (const std::size_t index : indices) {
    if (index < at || index >= size()) {
      throw std::out_of_range("image " + std::to_string(index) + " asked of " +
                              std::to_string(size()) + ", after image " + std::to_string(at));
    }
    stream.skip(std::uint64_t{index - at} * pixels_);
    stream.read(std::span(record).subspan(1));
    record[0] = labels_[index];
    take(index, record);
    at = index + 1;
  }
  // Where the last image was read anyway, what follows is checked too.
  if (at == size()) stream.expect_end();
}

// Of all labels, the scale, and as many images as are quickly read where they are compressed.
std::uint64_t IdxSource::fingerprint() const {
  uLong checksum = crc32_z(0, labels_.data(), labels_.size());
  checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(values_.data()), sizeof values_);
  std::vector<std::size_t> first(std::min(size(), kSampledBytes / record_bytes_max() + 1));
  std::iota(first.begin(), first.end(), std::size_t{0});
  load(first, [&](std::size_t, Record record) {
    checksum = crc32_z(checksum, record.data(), record.size());
  });
  return checksum;
}

void IdxSource::decode(Record record, std::span<float> input,
                       std::span<std::int32_t> targets) const {
  if (record.size() != record_bytes_max() || record[0] >= classes_) {
    throw std::runtime_error("a record of " + plural(record.size(), "byte") + " is no image of " +
                             describe());
  }
  targets[0] = record[0];
  for (std::size_t i = 0; i < pixels_; ++i) input[i] = values_[record[1 + i]];
}

}  // namespace

std::shared_ptr<const SampleSource> open_idx(const IdxOptions& options) {
  const std::string directory = options.directory.empty() ? kFashionMnist : options.directory;
  // "dir/" has no last part; the path's own name is what people know the set by.
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return std::make_shared<IdxSource>(
      find_idx_files(directory, options.is_test), options,
      path.filename().string() + (options.is_test ? " test" : " train"));
}

}  // namespace unisono::train
