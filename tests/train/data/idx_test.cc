// IDX files: what is read from whole ones and how broken ones are refused.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <limits>
#include <numeric>

#include "tests/train/data/files.h"
#include "unisono/train/loader.h"

namespace unisono::train::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kImages = "/train-images-idx3-ubyte";
constexpr const char* kLabels = "/train-labels-idx1-ubyte";

std::unique_ptr<LoadedDataset> open_and_load(const IdxOptions& options) {
  return load(open_idx(options), nullptr, {.mode = LoadMode::kLocal});
}

// The message of opening and reading a folder with these two files.
std::string refusal(const std::string& images, const std::string& labels,
                    const std::string& extension = "") {
  const TemporaryFolder folder;
  write_file(folder.path() + kImages + extension, images);
  write_file(folder.path() + kLabels + extension, labels);
  return thrown_by([&] { open_and_load({.directory = folder.path()}); });
}

class IdxFiles : public testing::TestWithParam<const char*> {
 protected:
  std::string packed(const std::string& bytes) const {
    return GetParam() == std::string(".gz") ? gzip(bytes) : bytes;
  }
};

TEST_P(IdxFiles, GiveEveryImageWithItsLabel) {
  const TemporaryFolder folder;
  write_file(folder.path() + kImages + GetParam(), packed(toy_images(20)));
  write_file(folder.path() + kLabels + GetParam(), packed(toy_labels(20)));
  const auto data = open_and_load({.directory = folder.path()});
  ASSERT_EQ(data->size(), 20u);
  EXPECT_EQ(data->classes(), 3);
  EXPECT_EQ(data->input_shape(), Shape{6});
  EXPECT_EQ(data->length(7), 6u);
  EXPECT_THAT(data->describe(), HasSubstr("train, 20 images 2x3, 3 classes"));
  const Batch batch = make_batch(*data, std::vector<std::size_t>{19, 0, 4});
  EXPECT_EQ(batch.inputs.shape(), (Shape{3, 6}));
  EXPECT_THAT(batch.targets, ElementsAre(1, 0, 1));
  EXPECT_THAT(batch.indices, ElementsAre(19, 0, 4));
  EXPECT_EQ(batch.inputs.values()[5], 195.0F / 255.0F);
  EXPECT_EQ(batch.inputs.values()[6], 0.0F);
  EXPECT_EQ(batch.inputs.values()[12], 40.0F / 255.0F);
}

TEST_P(IdxFiles, AreReadFromAnyImageToAnyOther) {
  const TemporaryFolder folder;
  write_file(folder.path() + kImages + GetParam(), packed(toy_images(20)));
  write_file(folder.path() + kLabels + GetParam(), packed(toy_labels(20)));
  const auto source = open_idx({.directory = folder.path()});
  EXPECT_EQ(source->is_seekable(), GetParam() == std::string());
  std::vector<std::pair<std::size_t, int>> seen;
  source->load(std::vector<std::size_t>{0, 3, 4, 18},
               [&](std::size_t index, auto record) { seen.emplace_back(index, record[1]); });
  EXPECT_THAT(seen,
              ElementsAre(std::pair(0, 0), std::pair(3, 30), std::pair(4, 40), std::pair(18, 180)));
  EXPECT_THROW(source->load(std::vector<std::size_t>{4, 3}, [](auto, auto) {}), std::out_of_range);
  EXPECT_THROW(source->load(std::vector<std::size_t>{20}, [](auto, auto) {}), std::out_of_range);
}

TEST_P(IdxFiles, OfDifferentCountsAreRefused) {
  const std::string message = refusal(packed(toy_images(5)), packed(toy_labels(6)), GetParam());
  EXPECT_THAT(message, HasSubstr("5 images"));
  EXPECT_THAT(message, HasSubstr("6 labels"));
}

TEST_P(IdxFiles, CutShortAnywhereAreRefused) {
  const std::string images = packed(toy_images(5)), labels = packed(toy_labels(5));
  for (std::size_t bytes = 0; bytes < images.size(); ++bytes) {
    EXPECT_NE(refusal(images.substr(0, bytes), labels, GetParam()), "nothing") << bytes;
  }
  for (std::size_t bytes = 0; bytes < labels.size(); ++bytes) {
    EXPECT_NE(refusal(images, labels.substr(0, bytes), GetParam()), "nothing") << bytes;
  }
}

TEST_P(IdxFiles, WithMoreThanTheirHeaderSaysAreRefused) {
  const std::string images = toy_images(5), labels = toy_labels(5);
  EXPECT_THAT(refusal(packed(images + "x"), packed(labels), GetParam()), HasSubstr("announces"));
  EXPECT_THAT(refusal(packed(images), packed(labels + "x"), GetParam()), HasSubstr("announces"));
  EXPECT_NE(refusal(packed(images) + "garbage", packed(labels), GetParam()), "nothing");
  EXPECT_NE(refusal(packed(images), packed(labels) + "garbage", GetParam()), "nothing");
}

TEST_P(IdxFiles, OfAnotherKindAreRefused) {
  const std::string labels = packed(toy_labels(1));
  EXPECT_THAT(refusal(packed("PK\3\4 not images at all"), labels, GetParam()),
              HasSubstr("not an IDX file"));
  std::string floats = toy_images(1);
  floats[2] = 0x0d;
  EXPECT_THAT(refusal(packed(floats), labels, GetParam()), HasSubstr("type 13"));
  EXPECT_THAT(refusal(packed(toy_labels(1)), labels, GetParam()), HasSubstr("1 dimensions"));
  EXPECT_THAT(refusal(packed(idx({0, 2, 3}, "")), packed(toy_labels(0)), GetParam()),
              HasSubstr("no images"));
}

// Sizes whose product does not even fit 64 bits, and ones that are only much too large.
TEST_P(IdxFiles, ThatAnnounceAbsurdSizesAreRefusedBeforeAnythingIsAllocated) {
  const std::string labels = packed(toy_labels(1));
  for (const std::vector<std::uint32_t>& extents :
       {std::vector<std::uint32_t>{~0u, ~0u, ~0u}, {1, ~0u, ~0u}, {1u << 31, 1, 1}, {1, 1, ~0u}}) {
    EXPECT_THAT(refusal(packed(idx(extents, "abc")), labels, GetParam()),
                HasSubstr("the header announces"));
  }
  EXPECT_NE(refusal(packed(toy_images(1)), packed(idx({~0u}, "a")), GetParam()), "nothing");
}

INSTANTIATE_TEST_SUITE_P(, IdxFiles, testing::Values("", ".gz"), [](const auto& info) {
  return info.param == std::string() ? "Plain" : "Compressed";
});

TEST(IdxSet, OfCompressedMembersEndToEndIsOneFile) {
  const TemporaryFolder folder;
  const std::string images = toy_images(9);
  write_file(folder.path() + kImages + ".gz", gzip(images.substr(0, 25)) + gzip(images.substr(25)));
  write_file(folder.path() + kLabels, toy_labels(9));
  EXPECT_EQ(open_and_load({.directory = folder.path()})->size(), 9u);
}

TEST(IdxSet, WithADamagedByteInACompressedFileIsRefused) {
  std::string images = gzip(toy_images(9));
  images[images.size() - 6] ^= 1;  // in the checksum that ends it
  EXPECT_THAT(refusal(images, toy_labels(9), ".gz"), HasSubstr("damaged"));
}

TEST(IdxSet, IsFoundUnderItsOtherNames) {
  for (const char* prefix : {"/", "/emnist-letters-"}) {
    const TemporaryFolder folder;
    write_file(folder.path() + prefix + "test-images.idx3-ubyte", toy_images(4));
    write_file(folder.path() + prefix + "test-labels.idx1-ubyte", toy_labels(4));
    EXPECT_EQ(open_idx({.directory = folder.path(), .is_test = true})->size(), 4u) << prefix;
  }
}

TEST(IdxSet, ThatIsOneOfSeveralInTheFolderIsNotGuessed) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    write_file(folder / (std::string(name) + "-train-images-idx3-ubyte"), toy_images(4));
    write_file(folder / (std::string(name) + "-train-labels-idx1-ubyte"), toy_labels(4));
  }
  EXPECT_THAT(thrown_by([&] { open_idx({.directory = folder.path()}); }),
              HasSubstr("several data sets"));
}

TEST(IdxSet, WithLabelsOfAnotherIsRefused) {
  for (const auto& [images, labels] :
       {std::pair("a-", "b-"), std::pair("", "b-"), std::pair("a-", "")}) {
    const TemporaryFolder folder;
    const std::string image_file = folder / (images + std::string(kImages + 1));
    const std::string label_file = folder / (labels + std::string(kLabels + 1));
    write_file(image_file, toy_images(4));
    write_file(label_file, toy_labels(4));
    EXPECT_THAT(thrown_by([&] { open_idx({.directory = folder.path()}); }),
                AllOf(HasSubstr(image_file), HasSubstr(label_file), HasSubstr("--data DIR")));
  }
}

TEST(IdxSet, ThatIsThereCompressedAndPlainIsOne) {
  const TemporaryFolder folder;
  for (const char* extension : {".gz", ""}) {
    const bool is_packed = *extension != '\0';
    const std::string images = folder / "a-train-images-idx3-ubyte" + extension;
    const std::string labels = folder / "a-train-labels-idx1-ubyte" + extension;
    write_file(images, is_packed ? gzip(toy_images(4)) : toy_images(4));
    write_file(labels, is_packed ? gzip(toy_labels(4)) : toy_labels(4));
  }
  const auto source = open_idx({.directory = folder.path()});
  EXPECT_EQ(source->size(), 4u);
  EXPECT_TRUE(source->is_seekable()) << "the plain one";
}

TEST(IdxSet, ThatIsMissingIsToldByWhatIsThere) {
  const TemporaryFolder folder;
  const auto told = [](const std::string& path, bool is_test = false) {
    return thrown_by([&] { open_idx({.directory = path, .is_test = is_test}); });
  };
  EXPECT_THAT(told(folder / "nowhere"), HasSubstr(folder / "nowhere: no such folder"));
  EXPECT_THAT(told(folder.path()),
              HasSubstr(folder.path() + " holds no IDX files (train-images-idx3-ubyte[.gz], "
                                        "train-labels-idx1-ubyte[.gz])"));
  EXPECT_THAT(told(folder.path(), true), HasSubstr("(t10k-images-idx3-ubyte[.gz], "));
  const std::string images = folder.path() + kImages;
  write_file(images, toy_images(4));
  EXPECT_THAT(told(images), HasSubstr(images + " is not a folder"));
  EXPECT_THAT(told(folder.path()), HasSubstr("holds no train-labels-idx1-ubyte[.gz];"));
  for (const std::string& path : {folder / "nowhere", folder.path(), images}) {
    EXPECT_THAT(told(path),
                AllOf(HasSubstr("--data DIR"), Not(HasSubstr("dataset-fashion-mnist"))));
  }
}

TEST(IdxSet, ThatIsMissingFromTheDefaultFolderNamesThePackage) {
  if (std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is installed";
  }
  EXPECT_THAT(thrown_by([] { open_idx({}); }),
              AllOf(HasSubstr("install the Debian package dataset-fashion-mnist"),
                    HasSubstr("--data DIR")));
}

TEST(IdxSet, ThatIsCutShortTellsBothSizes) {
  const std::string images = toy_images(5);
  EXPECT_THAT(refusal(images.substr(0, 40), toy_labels(5)),
              HasSubstr("40 bytes, but the header announces 46: cut short; copy it again"));
}

TEST(IdxSet, ThatIsAPipeIsRefusedAndNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() + kImages).c_str(), 0600), 0);
  write_file(folder.path() + kLabels, toy_labels(4));
  EXPECT_THAT(thrown_by([&] { open_idx({.directory = folder.path()}); }),
              HasSubstr("not a regular file"));
}

TEST(IdxSet, IsScaledAsAsked) {
  const TemporaryFolder folder;
  write_file(folder.path() + kImages, toy_images(4));
  write_file(folder.path() + kLabels, toy_labels(4));
  const auto data = open_and_load(
      {.directory = folder.path(), .is_flat = false, .mean = 0.5F, .deviation = 0.25F});
  EXPECT_EQ(data->input_shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(make_batch(*data, std::vector<std::size_t>{0}).inputs.values()[0], -2.0F);
  EXPECT_EQ(make_batch(*data, std::vector<std::size_t>{1, 2}).inputs.shape(), (Shape{2, 1, 2, 3}));
  for (const float deviation : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(open_idx({.directory = folder.path(), .deviation = deviation}),
                 std::invalid_argument);
  }
}

TEST(Batches, OfNoSamplesAreEmptyAndOfUnknownOnesRefused) {
  const TemporaryFolder folder;
  write_file(folder.path() + kImages, toy_images(4));
  write_file(folder.path() + kLabels, toy_labels(4));
  const auto data = open_and_load({.directory = folder.path()});
  const Batch none = make_batch(*data, {});
  EXPECT_EQ(none.samples(), 0u);
  EXPECT_EQ(none.inputs.shape(), (Shape{0, 6}));
  EXPECT_THAT(thrown_by<std::out_of_range>([&] { make_batch(*data, std::vector<std::size_t>{4}); }),
              HasSubstr("sample 4 asked of"));
}

TEST(FashionMnist, IsReadWhole) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  for (const bool is_test : {false, true}) {
    const auto data = open_and_load({.is_test = is_test});
    ASSERT_EQ(data->size(), is_test ? 10000u : 60000u);
    EXPECT_EQ(data->classes(), 10);
    EXPECT_EQ(data->input_shape(), Shape{784});
    EXPECT_THAT(data->describe(), testing::StartsWith("fashion-mnist"));
    std::vector<std::size_t> of_class(10);
    std::vector<float> input(784);
    double total = 0;
    for (std::size_t i = 0; i < data->size(); ++i) {
      std::int32_t target = -1;
      data->read(i, input, std::span(&target, 1));
      ++of_class.at(static_cast<std::size_t>(target));
      total += std::accumulate(input.begin(), input.end(), 0.0) / 784;
    }
    EXPECT_THAT(of_class, testing::Each(data->size() / 10));
    EXPECT_NEAR(total / static_cast<double>(data->size()), 0.2865, 0.0005);
    EXPECT_EQ(data->report().held_bytes, data->size() * (785 + 8));
    EXPECT_EQ(data->report().peak_bytes, data->report().held_bytes);
  }
}

}  // namespace
}  // namespace unisono::train::test
