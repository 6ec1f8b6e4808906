// Files of the trainer: checkpoints and IDX sets.
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "tests/fuzz/target.h"
#include "tests/support/gzip.h"
#include "tests/support/temporary_folder.h"
#include "train/data/checkpoint_file.h"
#include "train/data/checkpoint_format.h"
#include "unisono/train/data.h"

namespace unisono::fuzz {
namespace {

using namespace train;

// In memory where that is possible: thousands of files are written here.
const unisono::test::TemporaryFolder& folder() {
  static const std::filesystem::path memory = "/dev/shm";
  static const unisono::test::TemporaryFolder the_folder(
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path());
  return the_folder;
}

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return to_bytes(std::string{std::istreambuf_iterator<char>(file), {}});
}

// ---- Checkpoints --------------------------------------------------------------------------------

// First byte of an input: whether what follows is a whole file, or a body that gets a header whose
// length and checksum are right.
Bytes checkpoint_of(Input* in) {
  const bool has_header = in->byte() % 2 == 1;
  const std::span<const std::byte> rest = in->rest();
  Bytes body(rest.begin(), rest.end());
  if (has_header) return body;
  body = bytes_of(std::uint64_t{kHeaderBytes + body.size()}) + body;
  const uLong checksum =
      crc32_z(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), body.size());
  return to_bytes(kCheckpointMagic) + bytes_of(kCheckpointVersion) +
         bytes_of(static_cast<std::uint32_t>(checksum)) + body;
}

void fuzz_checkpoint(std::span<const std::byte> input) {
  Input in(input);
  const std::string path = folder() / "checkpoint";
  const Bytes file = checkpoint_of(&in);
  write_file(path, file);
  Checkpoint checkpoint;
  try {
    checkpoint = read_checkpoint_file(path);
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).find(path) != std::string_view::npos, "which file?");
    return;
  }
  for (const auto* tensors : {&checkpoint.parameters, &checkpoint.buffers}) {
    for (const Checkpoint::NamedTensor& tensor : *tensors) {
      require(tensor.values.size() == element_count(tensor.shape), "a tensor of another size");
    }
  }
  require(checkpoint.order.size() <= 64, "a name above its limit");
  write_checkpoint_file(path, checkpoint, {});
  require(read_file(path) == file, "another checkpoint");
}

std::vector<Bytes> checkpoint_corpus() {
  Checkpoint checkpoint;
  checkpoint.model = "mlp 2-1";
  checkpoint.parameters = {{.name = "weight", .shape = {2, 1}, .values = {1.0F, 2.0F}},
                           {.name = "scale", .shape = {}, .values = {3.0F}}};
  checkpoint.buffers = {{.name = "none", .shape = {0, 7}, .values = {}}};
  checkpoint.optimizer = "adam";
  checkpoint.optimizer_state = {{.name = "m", .values = {0.5F}}};
  checkpoint.order = "shuffled";
  const std::string path = folder() / "made";
  write_checkpoint_file(path, checkpoint, {});
  const Bytes file = read_file(path);
  const Bytes body(file.begin() + kHeaderBytes, file.end());
  return {Bytes{std::byte{1}} + file, Bytes{std::byte{0}} + body, Bytes{std::byte{0}}, Bytes{}};
}

// ---- IDX ----------------------------------------------------------------------------------------

Bytes gzip(const Bytes& bytes) { return to_bytes(unisono::test::gzip(Input::text_of(bytes))); }

void fuzz_idx(std::span<const std::byte> input) {
  Input in(input);
  const int flags = in.byte();
  const auto labels = in.piece();
  const auto images = in.rest();
  const Bytes label_bytes(labels.begin(), labels.end());
  const Bytes image_bytes(images.begin(), images.end());
  write_file(folder() / "train-labels-idx1-ubyte", label_bytes);
  write_file(folder() / "train-images-idx3-ubyte",
             flags % 2 == 0 ? image_bytes : gzip(image_bytes));
  try {
    const auto source = open_idx({.directory = folder().path(), .is_flat = flags / 2 % 2 == 0});
    const std::size_t pixels = element_count(source->input_shape());
    // A compressed file may hold a thousand times its size, a plain one what it is.
    require(source->size() <= labels.size() && pixels <= 1100 * (image_bytes.size() + 100),
            "more than the files can hold");
    std::vector<std::size_t> indices(source->size());
    std::iota(indices.begin(), indices.end(), std::size_t{0});
    std::vector<float> values(pixels);
    source->load(indices, [&](std::size_t, SampleSource::Record record) {
      std::int32_t target = -1;
      source->decode(record, values, {&target, 1});
      require(target >= 0 && target < source->classes(), "a label of no class");
    });
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).find(folder().path()) != std::string_view::npos,
            "which file?");
  }
}

std::vector<Bytes> idx_corpus() {
  const auto idx = [](std::vector<std::uint8_t> extents, std::size_t elements) {
    Bytes bytes{std::byte{0}, std::byte{0}, std::byte{8}, static_cast<std::byte>(extents.size())};
    for (const std::uint8_t extent : extents) {
      bytes = bytes + Bytes(3, std::byte{0}) + bytes_of(extent);
    }
    for (std::size_t i = 0; i < elements; ++i) bytes.push_back(static_cast<std::byte>(i % 3));
    return bytes;
  };
  const auto input = [&](int flags, const Bytes& labels, const Bytes& images) {
    return bytes_of(static_cast<std::uint8_t>(flags)) + as_piece(labels) + images;
  };
  return {input(0, idx({3}, 3), idx({3, 2, 2}, 12)), input(1, idx({3}, 3), idx({3, 2, 2}, 12)),
          input(2, gzip(idx({1}, 1)), gzip(idx({1, 1, 1}, 1))),
          input(1, idx({0}, 0), idx({0, 0, 0}, 0)), input(0, idx({1}, 1), idx({1, 255, 255}, 4))};
}

}  // namespace

void add_train(Targets* targets) {
  targets->push_back({"checkpoint", fuzz_checkpoint, checkpoint_corpus, 1500});
  targets->push_back({"idx", fuzz_idx, idx_corpus, 1000});
}

}  // namespace unisono::fuzz
