// What the texts of VerbsOptions mean. Values only; any thread.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace unisono::verbs {

/// "mlx5_0,mlx5_1:2" or "^mlx5_2".
struct DeviceFilter {
  struct Item {
    std::string device;
    int port = 0;  ///< 0: all
  };
  bool excludes = false;
  std::vector<Item> items;  ///< none: everything is admitted

  bool admits(const std::string& device, int port) const;
};
Result<DeviceFilter> parse_devices(const std::string& text);

/// Neither: the best there is.
struct GidWish {
  std::optional<ibv_gid_type> type;
  std::optional<ibv_gid> address;
};
Result<GidWish> parse_gid(const std::string& text);

}  // namespace unisono::verbs
