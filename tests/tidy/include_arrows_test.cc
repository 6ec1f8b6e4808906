// Includes point one way, and README.md shows which. A failure here is a question about the design,
// not about the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/tidy/source_tree.h"

namespace unisono::test {
namespace {

// What the files of `folder`, which may be one file, may include with quotes: targets that are
// folders end in '/', anything else is one file. The first row that holds a file decides.
struct Arrow {
  std::string_view folder;
  std::vector<std::string_view> targets;
};

const std::vector<Arrow>& arrows() {
  static const std::vector<Arrow> table{
      {"include/unisono", {"unisono/"}},
      // Users of the public headers.
      {"bindings/c", {"bindings/c/", "unisono/"}},
      {"bindings/torch", {"csrc/", "unisono/unisono.h"}},
      {"bindings/python", {"bindings/python/", "unisono/"}},
      {"src/base", {"base/", "unisono/"}},
      {"src/recorder", {"recorder/", "base/"}},
      {"src/config", {"config/", "base/", "unisono/"}},
      {"src/topology", {"topology/", "base/"}},
      {"src/machine", {"machine/", "topology/", "base/"}},
      {"src/compute", {"compute/", "base/", "unisono/"}},
      {"src/plan", {"plan/", "base/", "unisono/types.h", "unisono/error.h"}},
      // How ranks meet and who has failed: what they say to each other, what is decided on it
      // without sockets and threads, and the sockets and threads that carry it.
      {"src/rendezvous/messages", {"rendezvous/messages/", "base/", "unisono/"}},
      {"src/rendezvous/sockets", {"rendezvous/sockets/", "rendezvous/messages/", "base/"}},
      {"src/rendezvous/failure",
       {"rendezvous/failure/", "rendezvous/messages/", "base/", "unisono/"}},
      {"src/rendezvous/store",
       {"rendezvous/store/", "rendezvous/sockets/", "rendezvous/messages/", "base/", "unisono/"}},
      {"src/rendezvous/sessions",
       {"rendezvous/sessions/", "rendezvous/failure/", "rendezvous/messages/", "base/",
        "unisono/"}},
      {"src/rendezvous/arbiter",
       {"rendezvous/arbiter/", "rendezvous/sessions/", "rendezvous/failure/", "rendezvous/sockets/",
        "rendezvous/messages/", "base/"}},
      {"src/rendezvous/meeting",
       {"rendezvous/meeting/", "rendezvous/arbiter/", "rendezvous/sessions/", "rendezvous/failure/",
        "rendezvous/store/", "rendezvous/sockets/", "rendezvous/messages/", "config/", "base/",
        "unisono/"}},
      {"src/rendezvous/client",
       {"rendezvous/client/", "rendezvous/meeting/", "rendezvous/arbiter/", "rendezvous/sessions/",
        "rendezvous/failure/", "rendezvous/sockets/", "rendezvous/messages/", "base/", "unisono/"}},
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
       {"cuda/", "backend/", "engine/", "rendezvous/messages/", "base/", "unisono/"}},
      // What runs a call: plans, shared memory, messages, devices.
      {"src/backend",
       {"backend/", "engine/", "native/", "compute/", "algorithms/", "recorder/", "base/",
        "unisono/"}},
      {"src/comm",
       {"comm/", "cuda/collectives/device_calls.h", "cuda/device/rank_device.h", "backend/",
        "engine/", "machine/", "topology/", "rendezvous/client/", "rendezvous/meeting/",
        "rendezvous/arbiter/arbiter_server.h", "rendezvous/store/",
        "rendezvous/failure/failure_decider.h", "rendezvous/messages/", "config/", "recorder/",
        "base/", "algorithms/", "transports/", "unisono/"}},
      // Users of the public calls; settings and arithmetic come from inside.
      {"src/addends", {"comm/", "compute/", "base/", "unisono/"}},
      {"src/objects", {"objects/", "comm/", "base/", "unisono/"}},
      // The backend of a GPU finds the driver as the runtime does.
      {"src/train/cuda",
       {"train/cuda/", "train/host/", "train/model/", "cuda/driver/cuda_api.h",
        "cuda/driver/driver_section.h", "cuda/kernels/embedded_kernels.h",
        "cuda/kernels/host_device.h", "config/config.h", "base/result.h", "unisono/"}},
      // A user of the public calls; only headers that need no source come from inside.
      {"src/train",
       {"train/", "base/new_file.h", "base/sanitizers.h", "base/signals_blocked.h", "unisono/"}},
      {"algorithms", {"algorithms/", "plan/", "base/", "unisono/types.h"}},
      {"transports/loopback", {"transports/loopback/", "transports/transport.h", "base/"}},
      {"transports/shm",
       {"transports/shm/", "transports/transport.h", "transports/frame.h", "compute/compute.h",
        "base/"}},
      {"transports/tcp",
       {"transports/tcp/", "transports/transport.h", "transports/frame.h", "transports/checksum.h",
        "base/"}},
      {"transports/verbs",
       {"transports/verbs/", "transports/transport.h", "transports/frame.h",
        "transports/checksum.h", "base/"}},
      {"transports", {"transports/frame.h", "transports/checksum.h", "base/"}},
      // Users of the public headers. What looks inside says so here.
      {"tools/common", {"tools/common/", "config/launcher.h", "base/", "unisono/"}},
      {"tools/blame", {"tools/blame/", "tools/common/", "recorder/", "topology/", "base/"}},
      {"tools/run",
       {"tools/run/", "tools/blame/verdict_text.h", "tools/common/", "recorder/",
        "rendezvous/meeting/introduction.h", "rendezvous/arbiter/strangers.h", "rendezvous/store/",
        "rendezvous/sockets/", "rendezvous/messages/", "config/config.h", "topology/", "base/"}},
      {"tools/perf",
       {"tools/perf/", "tools/common/", "cuda/kernels/embedded_kernels.h", "cuda/kernels/kernels.h",
        "cuda/driver/survey.h", "cuda/driver/cuda_api.h", "config/config.h", "config/launcher.h",
        "comm/selected.h", "topology/", "base/", "unisono/"}},
      {"tools/plan", {"tools/plan/", "tools/common/", "algorithms/", "plan/", "base/"}},
      {"tools/tune",
       {"tools/tune/", "tools/common/", "tools/info/machine.h", "algorithms/", "config/", "base/",
        "unisono/"}},
      {"tools/train",
       {"tools/train/", "tools/common/", "cuda/driver/survey.h", "config/config.h", "base/",
        "unisono/"}},
      {"tools/info",
       {"tools/info/", "tools/common/", "algorithms/", "machine/", "native/levels.h",
        "native/way_costs.h", "topology/", "compute/", "config/", "cuda/driver/survey.h",
        "transports/", "comm/verbs_settings.h", "base/", "unisono/"}},
      {"tools/main.cc", {"tools/common/"}},
      // Measures as `unisono perf` does, and as users see the library.
      {"bench/peers", {"bench/peers/", "tools/perf/lockstep.h", "tools/perf/slots.h", "unisono/"}},
  };
  return table;
}

bool is_of(const SourceFile& file, const Arrow& arrow) {
  return file.is_in(arrow.folder) || file.path == arrow.folder;
}

const Arrow* arrow_of(const SourceFile& file) {
  const auto row = std::find_if(arrows().begin(), arrows().end(),
                                [&](const Arrow& arrow) { return is_of(file, arrow); });
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

// Tests and the micro-benchmarks look inside anywhere.
TEST(IncludeArrows, CoverEveryOtherFolder) {
  for (const SourceFile& file : source_files()) {
    if (file.is_in("tests") || (file.is_in("bench") && !file.is_in("bench/peers"))) continue;
    EXPECT_NE(arrow_of(file), nullptr) << file.path << ": its folder has no row in the table";
  }
}

TEST(IncludeArrows, EveryRowStandsForFiles) {
  for (const Arrow& arrow : arrows()) {
    EXPECT_TRUE(std::any_of(source_files().begin(), source_files().end(),
                            [&](const SourceFile& file) { return is_of(file, arrow); }))
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

// A line of the list of layers in README.md, "folder, folder -> target, target": the targets are
// what these folders may include beside themselves and what the list leaves out.
struct Layer {
  std::vector<std::string> folders;
  std::vector<std::string> targets;
};

bool is_same_or_in(std::string_view path, std::string_view folder) {
  return path == folder || (path.starts_with(folder) && path[folder.size()] == '/');
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(", "), list.size());
    names.emplace_back(list.substr(0, comma));
    while (names.back().ends_with(' ')) names.back().pop_back();
    list.remove_prefix(std::min(comma + 2, list.size()));
  }
  return names;
}

std::vector<Layer> layers() {
  const std::vector<std::string>& lines = readmes().front().lines;
  const auto heading = std::find(lines.begin(), lines.end(), "## Layers");
  const auto begin = std::find(heading, lines.end(), "```");
  std::vector<Layer> all;
  for (auto line = begin; line != lines.end() && ++line != lines.end() && *line != "```";) {
    const std::size_t arrow = std::min(line->find("-> "), line->size());
    const std::size_t right = std::min(arrow + 3, line->size());
    all.push_back({.folders = names_in(std::string_view(*line).substr(0, arrow)),
                   .targets = names_in(std::string_view(*line).substr(right))});
  }
  return all;
}

// As in the table, the first that holds `path` decides. All: no layer.
std::size_t layer_of(const std::vector<Layer>& all, std::string_view path) {
  const auto layer = std::find_if(all.begin(), all.end(), [&](const Layer& each) {
    return std::any_of(each.folders.begin(), each.folders.end(),
                       [&](const std::string& folder) { return is_same_or_in(path, folder); });
  });
  return static_cast<std::size_t>(layer - all.begin());
}

// "plan/" as a path in the repository: src/plan.
std::string path_of(std::string_view target) {
  const std::string name(target.substr(0, target.size() - (target.ends_with('/') ? 1 : 0)));
  if (is_same_or_in(name, "unisono")) return "include/" + name;
  if (name == "csrc") return "bindings/torch";
  for (const char* root : {"algorithms", "transports", "tools", "bench", "bindings"}) {
    if (is_same_or_in(name, root)) return name;
  }
  return "src/" + name;
}

// The list names neither a folder's own files nor what nearly all folders include some of. How much
// of these each may include, the table alone says.
bool is_left_out(std::string_view path, const Arrow& arrow, const Layer& layer) {
  for (const char* common : {"src/base", "include/unisono", "tools/common"}) {
    if (is_same_or_in(path, common)) return true;
  }
  return std::any_of(layer.folders.begin(), layer.folders.end(), [&](const std::string& folder) {
    return is_same_or_in(arrow.folder, folder) && is_same_or_in(path, folder);
  });
}

TEST(Layers, TheReadmeHasEveryArrowOfTheTable) {
  const std::vector<Layer> all = layers();
  for (const Arrow& arrow : arrows()) {
    const std::size_t at = layer_of(all, arrow.folder);
    ASSERT_LT(at, all.size()) << arrow.folder << " has no line in README.md, \"Layers\"";
    for (const std::string_view target : arrow.targets) {
      const std::string path = path_of(target);
      const std::vector<std::string>& named = all[at].targets;
      EXPECT_TRUE(is_left_out(path, arrow, all[at]) ||
                  std::any_of(named.begin(), named.end(),
                              [&](const std::string& name) { return is_same_or_in(path, name); }))
          << arrow.folder << " may include " << path
          << "; its line in README.md says nothing of it";
    }
  }
}

TEST(Layers, ArrowsOfTheReadmeAreInTheTableAndPointDown) {
  const std::vector<Layer> all = layers();
  const auto may_include = [&](std::size_t layer, std::string_view name) {
    return std::any_of(arrows().begin(), arrows().end(), [&](const Arrow& arrow) {
      return layer_of(all, arrow.folder) == layer &&
             std::any_of(arrow.targets.begin(), arrow.targets.end(),
                         [&](std::string_view each) { return is_same_or_in(path_of(each), name); });
    });
  };
  for (std::size_t at = 0; at < all.size(); ++at) {
    for (const std::string& name : all[at].targets) {
      EXPECT_TRUE(may_include(at, name)) << all[at].folders.front() << " -> " << name;
      EXPECT_GT(layer_of(all, name), at)
          << all[at].folders.front() << " -> " << name << " points up";
      EXPECT_LT(layer_of(all, name), all.size()) << name << " has no line of its own";
    }
  }
}

}  // namespace
}  // namespace unisono::test
