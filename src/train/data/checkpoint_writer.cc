#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/new_file.h"
#include "train/data/checkpoint_file.h"
#include "train/data/checkpoint_format.h"

namespace unisono::train {

namespace {

// Of what is not yet the checkpoint: "<path>.tmp-<16 hexadecimal digits>".
constexpr std::string_view kUnfinished = ".tmp-";

// A file that is written once from its beginning, and gone again unless it became the checkpoint.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);

  template <typename T>
  void number(T value) {
    value = little_endian(value);
    add(&value, sizeof value);
  }
  void string(const std::string& text) {
    number(static_cast<std::uint32_t>(text.size()));
    add(text.data(), text.size());
  }
  void floats(std::span<const float> values);
  /// The header, when all else is written.
  void finish();
  void synchronize();
  /// Throws where another save has begun meanwhile.
  void take_place();

 private:
  void add(const void* data, std::size_t bytes);
  void flush();
  void write_at(const void* data, std::size_t bytes, std::uint64_t offset);

  NewFile file_;
  std::vector<std::uint8_t> block_;
  std::uint64_t written_ = kHeaderBytes;
  uLong checksum_ = crc32(0, nullptr, 0);
};

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

CheckpointFile::CheckpointFile(const std::string& path) : file_(path, kUnfinished, 0666) {
  if (!file_) fail("cannot create " + file_.name(), errno);
  block_.reserve(kBlockBytes);
}

void CheckpointFile::add(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kBlockBytes - block_.size());
    block_.insert(block_.end(), from, from + part);
    if (block_.size() == kBlockBytes) flush();
    from += part;
    bytes -= part;
  }
}

void CheckpointFile::floats(std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    add(values.data(), values.size_bytes());
  } else {
    for (const float value : values) number(value);
  }
}

void CheckpointFile::flush() {
  write_at(block_.data(), block_.size(), written_);
  checksum_ = crc32_z(checksum_, block_.data(), block_.size());
  written_ += block_.size();
  block_.clear();
}

void CheckpointFile::write_at(const void* data, std::size_t bytes, std::uint64_t offset) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(file_.fd(), from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      fail("cannot write " + file_.name() + " beyond " + std::to_string(offset) + " bytes", errno);
    from += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

// The checksum begins with the size, which stands before the body but is known after it.
void CheckpointFile::finish() {
  flush();
  const std::uint64_t size = little_endian(written_);
  uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(&size), sizeof size);
  checksum = crc32_combine(checksum, checksum_, static_cast<z_off_t>(written_ - kHeaderBytes));
  std::uint8_t header[kHeaderBytes];
  const std::uint32_t words[2] = {little_endian(kCheckpointVersion),
                                  little_endian(static_cast<std::uint32_t>(checksum))};
  std::memcpy(header, kCheckpointMagic.data(), kCheckpointMagic.size());
  std::memcpy(header + 8, words, sizeof words);
  std::memcpy(header + kUncheckedBytes, &size, sizeof size);
  write_at(header, sizeof header, 0);
}

void CheckpointFile::synchronize() {
  if (::fsync(file_.fd()) != 0) fail("cannot synchronize " + file_.name(), errno);
}

void CheckpointFile::take_place() {
  if (!file_.close()) fail("cannot write " + file_.name(), errno);
  if (file_.take_place()) return;
  if (errno != ENOENT) fail("cannot rename " + file_.name(), errno);
  throw std::runtime_error("another save has begun, and removed " + file_.name());
}

template <typename Named>
void write_tensors(CheckpointFile& file, const std::vector<Named>& tensors) {
  file.number(static_cast<std::uint32_t>(tensors.size()));
  for (const auto& tensor : tensors) {
    if (element_count(tensor.shape) != tensor.values.size()) {
      throw std::invalid_argument("checkpoint: " + tensor.name + " of shape " +
                                  to_string(tensor.shape) + " has " +
                                  std::to_string(tensor.values.size()) + " values");
    }
    if (tensor.shape.size() > kDimensionsMax) {
      throw std::invalid_argument("checkpoint: " + tensor.name + " has " +
                                  std::to_string(tensor.shape.size()) + " dimensions; at most " +
                                  std::to_string(kDimensionsMax));
    }
    file.string(tensor.name);
    file.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::size_t extent : tensor.shape) file.number(std::uint64_t{extent});
    file.floats(tensor.values);
  }
}

void write_body(CheckpointFile& file, const Checkpoint& checkpoint) {
  if (checkpoint.order.size() > kOrderBytesMax) {
    throw std::invalid_argument("checkpoint: the order \"" + checkpoint.order + "\" has " +
                                std::to_string(checkpoint.order.size()) + " bytes; at most " +
                                std::to_string(kOrderBytesMax));
  }
  file.string(checkpoint.model);
  write_tensors(file, checkpoint.parameters);
  write_tensors(file, checkpoint.buffers);
  file.string(checkpoint.optimizer);
  file.number(checkpoint.optimizer_steps);
  file.number(static_cast<std::uint32_t>(checkpoint.optimizer_state.size()));
  for (const Checkpoint::NamedArray& array : checkpoint.optimizer_state) {
    file.string(array.name);
    file.number(std::uint64_t{array.values.size()});
    file.floats(array.values);
  }
  file.number(checkpoint.epoch);
  file.number(checkpoint.step);
  file.number(checkpoint.step_samples);
  file.string(checkpoint.order);
  file.number(checkpoint.sampler_seed);
}

std::filesystem::path folder_of(const std::string& path) {
  return "." / std::filesystem::path(path).parent_path();
}

// What earlier saves have left. Where one of them is alive, as after its disk hung, it is not to
// put an older state in the place of this one's: it ends without its file.
void remove_unfinished(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string().append(kUnfinished);
  std::error_code ignored;  // a folder that may be written but not read keeps them
  std::filesystem::directory_iterator at(folder_of(path), ignored);
  for (; at != std::filesystem::directory_iterator(); at.increment(ignored)) {
    const std::string each = at->path().filename().string();
    const bool is_unfinished =
        each.starts_with(name) && each.size() == name.size() + NewFile::kDigits &&
        each.find_first_not_of("0123456789abcdef", name.size()) == std::string::npos &&
        std::filesystem::is_regular_file(at->symlink_status(ignored));
    if (is_unfinished) ::unlink(at->path().c_str());
  }
}

// Without it a power failure may forget the rename.
void synchronize_folder(const std::string& path) {
  const int fd = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may be written but not read: the rename itself is done
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void write_checkpoint_file(const std::string& path, const Checkpoint& checkpoint,
                           const std::function<void(SaveStage)>& reached) {
  const auto reach = [&](SaveStage stage) {
    if (reached) reached(stage);
  };
  try {
    remove_unfinished(path);
    CheckpointFile file(path);
    reach(SaveStage::kOpened);
    write_body(file, checkpoint);
    file.finish();
    reach(SaveStage::kWritten);
    file.synchronize();
    reach(SaveStage::kSynchronized);
    file.take_place();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("no checkpoint was saved: " + std::string(error.what()) +
                             "; the previous one, if any, is unchanged. Make room or name another "
                             "folder");
  }
  synchronize_folder(path);
  reach(SaveStage::kRenamed);
}

}  // namespace unisono::train
