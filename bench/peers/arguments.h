// The command line that all harnesses share. run.sh writes it; people need it only to repeat one
// measurement by hand.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace bench {

struct Arguments {
  std::string peer = "peer", transport = "default", buffers = "private";
  std::string collectives = "all";
  std::vector<std::size_t> sizes{4, 1024, 65536, 1 << 20};
  std::vector<std::string> modes{"hot"};
  double budget_ms = 20, deadline_s = 60, busy_s = 0;
  int ranks = 2;  ///< where the harness starts its own ranks
  int round = 0, fault_rank = -1;
  double fault_after_s = 1, hang_after_s = 30;  ///< with fault_rank
  bool check = true, errors_return = false;
  std::vector<std::string> rest;  ///< flags of one harness alone
};

inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

inline std::size_t parse_size(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const double unit = *end == 'K'   ? 1024.0
                      : *end == 'M' ? 1048576.0
                      : *end == 'G' ? 1073741824.0
                                    : 1;
  return static_cast<std::size_t>(number * unit);
}

inline Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    const auto number = [&] { return std::atof(value().c_str()); };
    if (key == "--peer")
      a.peer = value();
    else if (key == "--transport")
      a.transport = value();
    else if (key == "--buffers")
      a.buffers = value();
    else if (key == "--collectives")
      a.collectives = value();
    else if (key == "--modes")
      a.modes = split(value());
    else if (key == "--budget-ms")
      a.budget_ms = number();
    else if (key == "--deadline-s")
      a.deadline_s = number();
    else if (key == "--busy-s")
      a.busy_s = number();
    else if (key == "--ranks")
      a.ranks = static_cast<int>(number());
    else if (key == "--round")
      a.round = static_cast<int>(number());
    else if (key == "--fault-rank")
      a.fault_rank = static_cast<int>(number());
    else if (key == "--fault-after-s")
      a.fault_after_s = number();
    else if (key == "--hang-after-s")
      a.hang_after_s = number();
    else if (key == "--errors-return")
      a.errors_return = true;
    else if (key == "--no-check")
      a.check = false;
    else if (key == "--sizes") {
      a.sizes.clear();
      for (const std::string& size : split(value())) a.sizes.push_back(parse_size(size));
    } else
      a.rest.push_back(key);
  }
  return a;
}

}  // namespace bench
