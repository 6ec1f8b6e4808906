// Includes point one way. A failure here is a question about the design, not about the table:
// change a row only together with the picture of layers in README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/tidy/source_tree.h"

namespace unisono::test {
namespace {

// What the files of `folder` may include with quotes: folders end in '/', anything else is one
// file. The first row that holds a file decides.
struct Arrow {
  std::string_view folder;
  std::vector<std::string_view> targets;
};

const std::vector<Arrow>& arrows() {
  static const std::vector<Arrow> table{
      {"include/unisono", {"unisono/"}},
      {"src/base", {"base/", "unisono/"}},
      {"src/config", {"config/", "base/", "unisono/"}},
      {"src/topology", {"topology/", "base/"}},
      {"src/compute", {"compute/", "base/", "unisono/"}},
      {"src/plan", {"plan/", "base/", "unisono/types.h", "unisono/error.h"}},
      {"src/rendezvous", {"rendezvous/", "config/", "base/", "unisono/"}},
      {"src/engine",
       {"engine/", "plan/", "compute/", "base/", "unisono/", "transports/transport.h"}},
      // Native algorithms stand beside the engine, over the memory of one host.
      {"src/native",
       {"native/", "engine/operation.h", "transports/shm/", "compute/", "base/", "unisono/"}},
      // One room for GPUs: the driver, kernels, memory that peers can map, and above them the
      // calls.
      {"src/cuda/driver", {"cuda/driver/", "base/", "unisono/"}},
      {"src/cuda/kernels", {"cuda/kernels/", "cuda/driver/", "base/", "unisono/"}},
      {"src/cuda/memory",
       {"cuda/memory/", "cuda/driver/", "transports/shm/shared_segment.h",
        "transports/shm/descriptor_message.h", "base/", "unisono/types.h"}},
      {"src/cuda/device",
       {"cuda/device/", "cuda/memory/", "cuda/kernels/", "cuda/driver/", "config/", "base/",
        "unisono/"}},
      {"src/cuda/synchronisation",
       {"cuda/synchronisation/", "cuda/device/", "cuda/memory/", "cuda/kernels/device_work.h",
        "cuda/driver/", "transports/shm/segment.h", "base/"}},
      {"src/cuda/collectives",
       {"cuda/", "backend/", "engine/", "rendezvous/", "base/", "unisono/"}},
      // What runs a call: plans, shared memory, messages, devices.
      {"src/backend",
       {"backend/", "engine/", "native/", "compute/", "algorithms/", "base/", "unisono/"}},
      {"src/comm",
       {"comm/", "cuda/collectives/device_calls.h", "cuda/device/rank_device.h", "backend/",
        "engine/", "topology/", "rendezvous/", "config/", "base/", "algorithms/", "transports/",
        "unisono/"}},
      // A user of the public calls; only the settings of its runtime come from inside.
      {"src/objects", {"objects/", "comm/", "base/", "unisono/"}},
      // The backend of a GPU finds the driver as the runtime does.
      {"src/train/cuda",
       {"train/cuda/", "train/host/", "train/model/", "cuda/driver/cuda_api.h",
        "cuda/driver/driver_section.h", "cuda/kernels/embedded_kernels.h",
        "cuda/kernels/host_device.h", "config/config.h", "base/result.h", "unisono/"}},
      // A user of the public calls; only the mask of its own threads comes from inside.
      {"src/train", {"train/", "base/signals_blocked.h", "unisono/"}},
      {"algorithms", {"algorithms/", "plan/", "base/", "unisono/types.h"}},
      {"transports/loopback", {"transports/loopback/", "transports/transport.h", "base/"}},
      {"transports/shm",
       {"transports/shm/", "transports/transport.h", "transports/frame.h", "base/"}},
      {"transports/tcp",
       {"transports/tcp/", "transports/transport.h", "transports/frame.h", "base/"}},
      {"transports/verbs",
       {"transports/verbs/", "transports/transport.h", "transports/frame.h", "base/"}},
      {"transports", {"transports/frame.h", "base/"}},
      // Users of the public headers. What looks inside says so here.
      {"tools/common", {"tools/common/", "config/config.h", "base/", "unisono/"}},
      {"tools/run", {"tools/run/", "tools/common/", "topology/", "base/"}},
      {"tools/perf",
       {"tools/perf/", "tools/common/", "cuda/kernels/embedded_kernels.h", "cuda/kernels/kernels.h",
        "cuda/driver/survey.h", "cuda/driver/cuda_api.h", "config/config.h", "comm/selected.h",
        "topology/", "base/", "unisono/"}},
      {"tools/plan", {"tools/plan/", "tools/common/", "algorithms/", "plan/", "base/"}},
      {"tools/tune", {"tools/", "algorithms/", "config/", "base/", "unisono/"}},
      {"tools/train",
       {"tools/train/", "tools/common/", "cuda/driver/survey.h", "config/config.h", "base/",
        "unisono/"}},
      {"tools/info",
       {"tools/info/", "tools/common/", "algorithms/", "topology/", "compute/", "config/",
        "cuda/driver/survey.h", "transports/", "comm/verbs_settings.h", "unisono/"}},
  };
  return table;
}

const Arrow* arrow_of(const SourceFile& file) {
  const auto row = std::find_if(arrows().begin(), arrows().end(),
                                [&](const Arrow& arrow) { return file.is_in(arrow.folder); });
  return row == arrows().end() ? nullptr : &*row;
}

bool is_within(std::string_view target, std::string_view include) {
  return target.ends_with('/') ? include.starts_with(target) : include == target;
}

bool is_allowed(const Arrow& arrow, std::string_view include) {
  return std::any_of(arrow.targets.begin(), arrow.targets.end(),
                     [&](std::string_view target) { return is_within(target, include); });
}

TEST(IncludeArrows, PointOneWay) {
  for (const SourceFile& file : source_files()) {
    const Arrow* arrow = arrow_of(file);
    if (arrow == nullptr) continue;
    for (const Include& include : includes_of(file)) {
      EXPECT_TRUE(!include.quoted || is_allowed(*arrow, include.name))
          << place(file, include.line) << ": " << arrow->folder << " may not include \""
          << include.name << '"';
    }
  }
}

TEST(IncludeArrows, CoverEveryFolderOfTheLibrary) {
  for (const SourceFile& file : source_files()) {
    if (!file.is_in("src") && !file.is_in("transports") && !file.is_in("algorithms")) continue;
    EXPECT_NE(arrow_of(file), nullptr) << file.path << ": its folder has no row in the table";
  }
}

TEST(IncludeArrows, EveryRowStandsForFiles) {
  for (const Arrow& arrow : arrows()) {
    EXPECT_TRUE(std::any_of(source_files().begin(), source_files().end(),
                            [&](const SourceFile& file) { return file.is_in(arrow.folder); }))
        << arrow.folder << " holds no sources; remove its row";
  }
}

// An arrow that nothing needs lets a new dependence in unseen.
TEST(IncludeArrows, EveryTargetIsIncluded) {
  std::set<std::pair<std::string_view, std::string_view>> unused;
  for (const Arrow& arrow : arrows()) {
    for (const std::string_view target : arrow.targets) unused.emplace(arrow.folder, target);
  }
  for (const SourceFile& file : source_files()) {
    const Arrow* arrow = arrow_of(file);
    if (arrow == nullptr) continue;
    for (const Include& include : includes_of(file)) {
      std::erase_if(unused, [&](const auto& each) {
        return each.first == arrow->folder && is_within(each.second, include.name);
      });
    }
  }
  for (const auto& [folder, target] : unused) {
    ADD_FAILURE() << folder << " includes nothing of \"" << target << "\"; remove it from its row";
  }
}

TEST(IncludeArrows, RefuseAnIncludeAgainstThem) {
  const SourceFile plan{.path = "src/plan/plan.h", .lines = {"#include \"engine/engine.h\""}};
  const std::vector<Include> includes = includes_of(plan);
  ASSERT_EQ(includes.size(), 1u);
  EXPECT_FALSE(is_allowed(*arrow_of(plan), includes[0].name));
  EXPECT_TRUE(is_allowed(*arrow_of(plan), "base/result.h"));
}

}  // namespace
}  // namespace unisono::test
