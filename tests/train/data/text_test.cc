// Text as samples: windows, lines, parts, and which files it is made of.
#include <gmock/gmock.h>

#include <set>

#include "tests/train/data/files.h"
#include "unisono/train/loader.h"

namespace unisono::train::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::unique_ptr<LoadedDataset> loaded(std::shared_ptr<const SampleSource> source) {
  return load(std::move(source), nullptr, {.mode = LoadMode::kLocal});
}

// A sample's input and targets as text again, "input>targets".
std::string spoken(const Dataset& data, const TextSource& source, std::size_t index) {
  const Batch batch = make_batch(data, std::vector{index});
  std::string text;
  for (const float value : batch.inputs.values()) {
    text.push_back(source.vocabulary().at(static_cast<std::size_t>(value)));
  }
  text.push_back('>');
  for (const std::int32_t target : batch.targets) {
    text.push_back(source.vocabulary().at(static_cast<std::size_t>(target)));
  }
  return text;
}

std::vector<std::string> all_spoken(const TextOptions& options) {
  const auto source = open_text(options);
  const auto data = loaded(source);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < data->size(); ++i) all.push_back(spoken(*data, *source, i));
  return all;
}

TEST(TextWindows, PredictTheNextByte) {
  const TemporaryFolder folder;
  write_file(folder / "text", "hello world");
  EXPECT_THAT(all_spoken({.paths = {folder / "text"}, .context = 3}),
              ElementsAre("hel>ell", "lo >o w", "wor>orl"));
  EXPECT_THAT(all_spoken({.paths = {folder / "text"}, .context = 8, .stride = 1}),
              ElementsAre("hello wo>ello wor", "ello wor>llo worl", "llo worl>lo world"));
  const auto source = open_text({.paths = {folder / "text"}, .context = 3});
  EXPECT_EQ(source->vocabulary(), " dehlorw");
  EXPECT_EQ(source->classes(), 8);
  EXPECT_EQ(source->class_of('h'), 3);
  EXPECT_EQ(source->class_of('x'), -1);
  EXPECT_EQ(source->targets_per_sample(), 3u);
  EXPECT_EQ(loaded(source)->length(0), 3u);
}

TEST(TextWindows, CrossFilesAndBlocks) {
  const TemporaryFolder folder;
  // More than the 64 KiB that are read at a time, in files of odd sizes, one of them empty.
  std::string whole;
  for (unsigned i = 0; i < 200000; ++i) whole.push_back(static_cast<char>('a' + i * i % 23));
  write_file(folder / "a", whole.substr(0, 70001));
  write_file(folder / "b", "");
  write_file(folder / "c", whole.substr(70001));
  const auto source = open_text({.paths = {folder.path()}, .context = 1000, .stride = 999});
  const auto data = loaded(source);
  ASSERT_EQ(data->size(), (200000u - 1001u) / 999u + 1u);
  for (std::size_t i = 0; i < data->size(); ++i) {
    ASSERT_EQ(spoken(*data, *source, i),
              whole.substr(i * 999, 1000) + ">" + whole.substr(i * 999 + 1, 1000));
  }
}

TEST(TextWindows, OfTrainingHoldNoInputOfValidation) {
  const TemporaryFolder folder;
  std::string whole;
  for (int i = 0; i < 101; ++i) whole.push_back(static_cast<char>(i));
  write_file(folder / "text", whole);
  for (const std::size_t stride : {1u, 3u, 10u}) {
    TextOptions options{.paths = {folder / "text"}, .context = 10, .stride = stride};
    options.validation = 0.25;
    options.part = TextOptions::Part::kTrain;
    const auto train = loaded(open_text(options));
    options.part = TextOptions::Part::kValidation;
    const auto validation = loaded(open_text(options));
    std::set<float> seen;
    for (std::size_t i = 0; i < train->size(); ++i) {
      const Batch batch = make_batch(*train, std::vector{i});
      seen.insert(batch.inputs.values().begin(), batch.inputs.values().end());
    }
    for (std::size_t i = 0; i < validation->size(); ++i) {
      const Batch batch = make_batch(*validation, std::vector{i});
      for (const float value : batch.inputs.values()) ASSERT_EQ(seen.count(value), 0u) << stride;
    }
    // Both speak of the same classes.
    EXPECT_EQ(train->classes(), 101);
    EXPECT_EQ(validation->classes(), 101);
    EXPECT_GT(train->size(), validation->size());
  }
}

TEST(TextLines, ArePaddedWithNewlines) {
  const TemporaryFolder folder;
  write_file(folder / "text", "ab\n\nabcdefg\nxy");
  const TextOptions options{
      .paths = {folder / "text"}, .context = 4, .unit = TextOptions::Unit::kLines};
  EXPECT_THAT(all_spoken(options),
              ElementsAre("ab\n\n>b\n\n\n", "abcd>bcde", "efg\n>fg\n\n", "xy\n\n>y\n\n\n"));
  const auto data = loaded(open_text(options));
  EXPECT_EQ(data->length(0), 2u);
  EXPECT_EQ(data->length(1), 4u);
  EXPECT_EQ(data->length(2), 3u);
}

TEST(TextLines, AsLongAsTheContextAreOneSample) {
  const TemporaryFolder folder;
  write_file(folder / "text", "abcd\nabcd");
  EXPECT_THAT(
      all_spoken({.paths = {folder / "text"}, .context = 4, .unit = TextOptions::Unit::kLines}),
      ElementsAre("abcd>bcd\n", "abcd>bcd\n"));
}

TEST(TextFiles, AreSortedAndEachCountedOnce) {
  const TemporaryFolder folder;
  write_file(folder / "b", "bb");
  write_file(folder / "a", "aa");
  fs::create_directory(folder / "folder");
  write_file(folder / "folder/z", "zz");
  fs::create_symlink("b", folder / "link");
  fs::create_symlink("nowhere", folder / "broken");
  fs::create_symlink("folder", folder / "linked-folder");
  EXPECT_THAT(all_spoken({.paths = {folder.path()}, .context = 3}), ElementsAre("aab>abb"));
  EXPECT_THAT(all_spoken({.paths = {folder / "link", folder / "a", folder / "a"}, .context = 3}),
              ElementsAre("aab>abb"));
}

TEST(TextFiles, ThatAreNoneAreRefusedWithTheOption) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "nowhere", folder.path(), std::string("/dev/null")}) {
    EXPECT_THAT(thrown_by([&] { open_text({.paths = {path}}); }), HasSubstr(path));
  }
  EXPECT_THAT(thrown_by([&] { open_text({.paths = {folder / "nowhere"}}); }),
              HasSubstr("--data FILE"));
  write_file(folder / "short", "only ten b");
  for (const std::size_t context : {10u, 64u}) {
    EXPECT_THAT(thrown_by([&] { open_text({.paths = {folder / "short"}, .context = context}); }),
                HasSubstr("10 bytes gives no sample of " + std::to_string(context)));
  }
  EXPECT_NO_THROW(open_text({.paths = {folder / "short"}, .context = 9}));
}

TEST(TextFiles, ThatShrinkWhileInUseAreNoticed) {
  const TemporaryFolder folder;
  write_file(folder / "text", std::string(1000, 'a'));
  const auto source = open_text({.paths = {folder / "text"}, .context = 10});
  write_file(folder / "text", std::string(500, 'a'));
  EXPECT_THAT(thrown_by([&] { loaded(source); }), HasSubstr("shorter"));
  write_file(folder / "text", std::string(1000, 'b'));
  const auto changed = loaded(source);
  EXPECT_THAT(thrown_by([&] { make_batch(*changed, std::vector<std::size_t>{0}); }),
              HasSubstr("byte 98"));
}

TEST(TextOptions, ThatMeanNothingAreRefused) {
  const TemporaryFolder folder;
  write_file(folder / "text", "some text");
  const auto refused = [&](TextOptions options) {
    options.paths = {folder / "text"};
    return thrown_by<std::invalid_argument>([&] { open_text(options); });
  };
  EXPECT_THAT(refused({.context = 0}), HasSubstr("a context of 0"));
  EXPECT_THAT(refused({.context = ~std::size_t{0}}), HasSubstr("a context of"));
  EXPECT_THAT(refused({.context = 2, .validation = 1.0}), HasSubstr("validation"));
  EXPECT_THAT(refused({.context = 2, .validation = -0.1}), HasSubstr("validation"));
}

TEST(LicenceTexts, AreTheDefault) {
  if (!fs::exists("/usr/share/common-licenses/GPL-3")) {
    GTEST_SKIP() << "this is no Debian: /usr/share/common-licenses is not there";
  }
  const auto source = open_text({});
  EXPECT_GT(source->size(), 3000u);
  EXPECT_GT(source->classes(), 80);
  EXPECT_LT(source->classes(), 120);
  EXPECT_EQ(loaded(source)->size(), source->size());
}

}  // namespace
}  // namespace unisono::train::test
