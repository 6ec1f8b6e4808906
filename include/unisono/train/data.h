// Data sets and batches: what lies on disk (SampleSource), what a rank can read samples from
// (Dataset), and a batch of them.
//
// A source opens files, checks them and hands out records: the bytes of a sample as they are stored
// (a label and its pixels, a stretch of text). load() of loader.h makes a Dataset of a source in
// one of three ways. Failures of files throw std::runtime_error with the path and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/train/tensor.h"

namespace unisono::train {

/// Samples by index. Between calls of prepare() immutable, so any thread may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::size_t size() const = 0;
  virtual int classes() const = 0;
  /// Of one sample's input, for example [784] or [context].
  virtual Shape input_shape() const = 0;
  /// Target classes per sample: 1, or the context's length for text.
  virtual std::size_t targets_per_sample() const = 0;
  /// `input` has element_count(input_shape()) values, `targets` targets_per_sample().
  virtual void read(std::size_t index, std::span<float> input,
                    std::span<std::int32_t> targets) const = 0;
  /// For sorting batches by length: what is not padding. Images: the input's size.
  virtual std::size_t length(std::size_t index) const = 0;
  /// "fashion-mnist train, 60000 images 28x28".
  virtual std::string describe() const = 0;
  /// Only these samples are read until the next call: a lazy data set reads them now. Nobody else
  /// may use the data set meanwhile.
  virtual void prepare(std::span<const std::size_t> indices) { (void)indices; }
};

struct Batch {
  Tensor inputs;                      ///< [samples, input_shape...]
  std::vector<std::int32_t> targets;  ///< samples * targets_per_sample
  std::vector<std::size_t> indices;   ///< which samples of the data set
  std::size_t samples() const { return indices.size(); }
};

/// The batch of these samples, in this order. None: an empty batch. An index beyond the data set
/// throws std::out_of_range.
Batch make_batch(const Dataset& data, std::span<const std::size_t> indices);

/// Samples where they are stored. Immutable: any thread may use it.
class SampleSource {
 public:
  using Record = std::span<const std::uint8_t>;
  /// Gets a sample's index and its record, which is valid during the call.
  using Take = std::function<void(std::size_t index, Record record)>;

  virtual ~SampleSource() = default;
  virtual std::size_t size() const = 0;
  virtual int classes() const = 0;
  virtual Shape input_shape() const = 0;
  virtual std::size_t targets_per_sample() const = 0;
  virtual std::string describe() const = 0;
  /// No record is shorter or longer. Equal: all have one size.
  virtual std::size_t record_bytes_min() const = 0;
  virtual std::size_t record_bytes_max() const = 0;
  /// False where reaching a sample means reading all before it, as in a compressed file.
  virtual bool is_seekable() const = 0;
  /// Reads the samples `indices`, which ascend, and no others.
  virtual void load(std::span<const std::size_t> indices, const Take& take) const = 0;
  /// A record as numbers; the spans are as in Dataset::read. A record from elsewhere that is none
  /// of this source throws std::runtime_error.
  virtual void decode(Record record, std::span<float> input,
                      std::span<std::int32_t> targets) const = 0;
  /// As Dataset::length.
  virtual std::size_t length(Record record) const = 0;
  /// By which load() notices that ranks have different samples of one kind: equal where all samples
  /// are, wherever they lie. It may read a few; where one differs that it does not, nobody sees it.
  virtual std::uint64_t fingerprint() const { return 0; }
};

/// Images and labels in IDX files, plain or gzip:
/// {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz], also with a prefix
/// ("emnist-letters-train-...") where it is the only set of the folder, and with a dot before
/// "idx". Images and labels have the same prefix. Every label is checked on opening; pixels are
/// read by load().
struct IdxOptions {
  std::string directory{};  ///< empty: where Debian's dataset-fashion-mnist puts Fashion-MNIST
  bool is_test = false;     ///< the test images instead of the training images
  bool is_flat = true;      ///< input shape [rows * columns] or else [1, rows, columns]
  float mean = 0.0F;        ///< input = (pixel / 255 - mean) / deviation
  float deviation = 1.0F;   ///< greater than 0
};
std::shared_ptr<const SampleSource> open_idx(const IdxOptions& options);

/// Text for a character model: the classes are the bytes that occur in it, the input is a stretch
/// of it as class numbers, the targets are the same stretch one byte further on.
struct TextOptions {
  enum class Part { kAll, kTrain, kValidation };
  enum class Unit {
    kWindows,  ///< a sample is `context` bytes, wherever they begin
    kLines,    ///< a sample is a line or, of a longer one, up to `context` bytes; the rest is
               ///< padded with newlines. Padding takes part in the loss; Dataset::length() tells
               ///< where it begins, for what should not count it
  };
  /// Files, and folders for the regular files in them. Links are followed once and a file counts
  /// once, in the order of the sorted names, so that it is the same text on every rank. Empty: the
  /// licence texts of Debian.
  std::vector<std::string> paths;
  std::size_t context = 64;
  std::size_t stride = 0;  ///< from one window to the next; 0: context
  Unit unit = Unit::kWindows;
  Part part = Part::kAll;
  /// The last samples, this part of them, are kept for validation; windows that reach from one part
  /// into the other belong to none.
  double validation = 0.1;
};

class TextSource : public SampleSource {
 public:
  /// The byte of each class, ascending.
  virtual const std::string& vocabulary() const = 0;
  /// The class of a byte, -1 when the text does not hold it.
  virtual int class_of(char byte) const = 0;
};
std::shared_ptr<const TextSource> open_text(const TextOptions& options);

}  // namespace unisono::train
