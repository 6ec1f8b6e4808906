#include "tools/train/charts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "tools/common/environment.h"

namespace unisono::train {
namespace {

constexpr double kKibibyte = 1024.0;

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    throw std::runtime_error(fmt::format("cannot write {}: {}; choose another folder by --output",
                                         path.string(), std::strerror(errno)));
  }
}

// What both scripts begin with: an SVG file and, where this gnuplot can, a PNG file of each plot.
constexpr const char* kScript =
    R"(# gnuplot {name}.gp, in this folder, draws {name}.svg and {name}.png
set title "{title}" noenhanced
set grid
{settings}
set terminal svg size 900,560 dynamic background "white" font "sans,13"
set output "{name}.svg"
{plot}
if (strstrt(GPVAL_TERMINALS, " pngcairo ") > 0) {{
  set terminal pngcairo size 900,560 font "sans,11"
  set output "{name}.png"
  replot
}} else {{
  if (strstrt(GPVAL_TERMINALS, " png ") > 0) {{
    set terminal png size 900,560
    set output "{name}.png"
    replot
  }}
}}
)";

void write_script(const std::filesystem::path& folder, const std::string& name,
                  const std::string& title, const std::string& settings, const std::string& plot) {
  std::string quoted;
  for (const char c : title) {
    if (c != '"' && c != '\\' && c != '\n') quoted += c;
  }
  write_file(folder / (name + ".gp"),
             fmt::format(fmt::runtime(kScript), fmt::arg("name", name), fmt::arg("title", quoted),
                         fmt::arg("settings", settings), fmt::arg("plot", plot)));
}

void write_curve(const std::filesystem::path& folder, const ChartData& data) {
  std::string loss = "# epoch  loss of training\n";
  for (const CurvePoint& point : data.curve) {
    loss += fmt::format("{:.5f} {:.6g}\n", point.epoch, point.loss);
  }
  std::string epochs = "# epoch  loss of test  accuracy of test in %\n";
  for (const EpochPoint& point : data.epochs) {
    epochs +=
        fmt::format("{:g} {:.6g} {:.4f}\n", point.epoch, point.test_loss, 100 * point.accuracy);
  }
  const auto [low, high] = std::ranges::minmax(data.epochs, {}, &EpochPoint::accuracy);
  // Room around them, also where there is one point alone.
  const double from = std::max(std::floor(100 * low.accuracy) - 1, 0.0);
  const double to = std::min(std::ceil(100 * high.accuracy) + 1, 100.0);
  write_file(folder / "curve-loss.dat", loss);
  write_file(folder / "curve-epochs.dat", epochs);
  write_script(folder, "curve", data.title,
               fmt::format("set xlabel \"epoch\"\nset xrange [0:*]\nset ylabel \"loss\"\n"
                           "set y2label \"test accuracy, %\"\nset y2range [{:g}:{:g}]\n"
                           "set ytics nomirror\nset y2tics\nset key center right",
                           from, to),
               "plot \"curve-loss.dat\" using 1:2 with lines lc rgb \"#9db7d5\" "
               "title \"training loss\", \\\n"
               "  \"curve-epochs.dat\" using 1:2 with linespoints lw 2 lc rgb \"#1f5fa8\" "
               "title \"test loss\", \\\n"
               "  \"\" using 1:3 axes x1y2 with linespoints lw 2 lc rgb \"#d0661c\" "
               "title \"test accuracy\"");
}

// The kinds of calls that moved anything.
std::vector<std::size_t> kinds_of(const std::vector<TrainCost>& costs) {
  std::vector<std::size_t> kinds;
  for (std::size_t kind = 0; kind < kCollectiveCount; ++kind) {
    const bool is_used = std::any_of(costs.begin(), costs.end(), [&](const TrainCost& cost) {
      return cost.bytes_sent[kind] > 0;
    });
    if (is_used) kinds.push_back(kind);
  }
  return kinds;
}

// False where there is nothing to draw: one rank sends nothing.
bool write_communication(const std::filesystem::path& folder, const ChartData& data) {
  const std::vector<std::size_t> kinds = kinds_of(data.costs);
  if (kinds.empty() || data.steps == 0) return false;
  std::string table = "rank";
  for (const std::size_t kind : kinds) {
    table += fmt::format(" {}", name_of(static_cast<Collective>(kind)));
  }
  table += '\n';
  for (const TrainCost& cost : data.costs) {
    table += fmt::format("{}", cost.device);
    for (const std::size_t kind : kinds) {
      table += fmt::format(" {:.3f}", static_cast<double>(cost.bytes_sent[kind]) / kKibibyte /
                                          static_cast<double>(data.steps));
    }
    table += '\n';
  }
  write_file(folder / "communication.dat", table);
  write_script(folder, "communication", data.title + ": sent in a step",
               "set xlabel \"rank\"\nset ylabel \"KiB per step\"\nset yrange [0:*]\n"
               "set style data histograms\nset style histogram rowstacked\n"
               "set style fill solid 0.8 border -1\nset boxwidth 0.6\nset key outside noenhanced",
               fmt::format("plot for [i=2:{}] \"communication.dat\" using i:xtic(1) "
                           "title columnheader(i)",
                           kinds.size() + 1));
  return true;
}

enum class Drawn { kYes, kNoGnuplot, kFailed };

Drawn run_gnuplot(const std::filesystem::path& folder, const std::string& name) {
  // The script names its files without a folder, so that the folder may be moved.
  const std::string change = fmt::format("cd '{}'", [&] {
    std::string quoted;
    for (const char c : folder.string())
      quoted += c == '\'' ? std::string("''") : std::string(1, c);
    return quoted;
  }());
  const std::string load = fmt::format("load '{}.gp'", name);
  std::string program = "gnuplot", flag = "-e";
  std::string first = change, second = load;
  char* arguments[] = {program.data(), flag.data(),   first.data(),
                       flag.data(),    second.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const std::vector<std::string> inherited = tools::inherited_environment();
  std::vector<char*> environment;
  for (const std::string& entry : inherited)
    environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const int error =
      posix_spawnp(&pid, program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return Drawn::kNoGnuplot;
  if (error != 0) return Drawn::kFailed;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Drawn::kYes : Drawn::kFailed;
}

}  // namespace

void remove_charts(const std::string& folder) {
  std::error_code ignored;
  for (const char* file :
       {"curve-loss.dat", "curve-epochs.dat", "curve.gp", "curve.svg", "curve.png",
        "communication.dat", "communication.gp", "communication.svg", "communication.png"}) {
    std::filesystem::remove(std::filesystem::path(folder) / file, ignored);
  }
}

std::vector<std::string> draw_charts(const std::string& folder, const ChartData& data) {
  const std::filesystem::path path(folder);
  remove_charts(folder);
  std::vector<std::string> names;
  if (!data.curve.empty() && !data.epochs.empty()) {
    write_curve(path, data);
    names.emplace_back("curve");
  }
  if (write_communication(path, data)) names.emplace_back("communication");
  std::vector<std::string> said;
  for (const std::string& name : names) {
    const Drawn drawn = run_gnuplot(path, name);
    if (drawn == Drawn::kNoGnuplot) {
      return {
          fmt::format("no charts: gnuplot is not installed (Debian package gnuplot-nox); the "
                      "data are kept in {}, to be drawn by `gnuplot NAME.gp` there",
                      folder)};
    }
    if (drawn == Drawn::kFailed) {
      said.push_back(
          fmt::format("no chart: gnuplot failed on {}", (path / (name + ".gp")).string()));
      continue;
    }
    said.push_back((path / (name + ".svg")).string());
    if (std::filesystem::exists(path / (name + ".png"))) {
      said.push_back((path / (name + ".png")).string());
    }
  }
  return said;
}

}  // namespace unisono::train
