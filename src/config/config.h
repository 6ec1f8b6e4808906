// Every environment variable of unisono in one typed table: the only place that calls getenv.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/access_path.h"
#include "base/levels_setting.h"
#include "base/record_setting.h"
#include "base/result.h"
#include "base/secret_text.h"
#include "base/verbs_setting.h"
#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

/// What UNISONO_TRANSPORT may name: the one list of transports.
inline constexpr std::string_view kTransports[]{"auto", "shm", "tcp", "unix", "verbs", "loopback"};
/// "auto, shm, ...", for people.
std::string list_transports();

/// Whether GPU buffers are accepted, the driver's file ("" is libcuda.so.1) and that of cuBLAS, for
/// the trainer ("": the newest of those it knows).
struct CudaConfig {
  std::string use = "auto";
  bool direct = true;  ///< network devices read and write GPU memory where they can
  bool gates = true;   ///< the caller's stream waits for staged calls, and the caller does not
  std::string library;
  std::string cublas_library;
};

/// Values after parsing, with defaults where a variable is unset.
struct Config {
  std::string rendezvous = "env://";
  SecretText job_key;
  int port = 0;
  std::string interface_address;
  std::string launcher_store;
  bool rejoin = false;
  std::string transport = "auto";
  AccessPath access = AccessPath::kAutomatic;
  LevelsSetting levels;
  std::string wait = "auto";
  Order order = Order::kAny;
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds warn_after{30'000};
  std::chrono::milliseconds silence{3'000};
  std::string algorithm;
  bool measure = true;     ///< links between hosts
  std::string cache;       ///< folder of facts about this machine, or "off"; empty: nowhere
  std::string cache_base;  ///< of a default `cache`: the user's folder around it; else empty
  std::chrono::milliseconds measuring_max{8};  ///< of a host by its ranks; no variable sets it
  std::string tuning;
  std::size_t scratch_bytes = std::size_t{256} << 20;
  std::size_t eager_bytes = 0;
  int streams = 0;
  bool checksum = false;  ///< of what crosses sockets and RDMA
  VerbsSetting verbs;
  CudaConfig cuda;
  std::size_t object_staging_bytes = std::size_t{16} << 20;
  std::size_t object_limit_bytes = std::size_t{64} << 30;
  RecordSetting recorder;
  std::string recorder_memory;
  std::string trace;
  std::string log = "warning";

  /// Reads the environment. kInvalidArgument names the variable, its value and what is accepted;
  /// an unknown variable that begins with UNISONO_ is reported too.
  UNISONO_API static Result<Config> from_environment();
  /// Likewise, with the default in the place of a value that is not accepted; `wrong` gets every
  /// error.
  UNISONO_API static Config from_environment(std::vector<Status>* wrong);
  /// Whether `cache` is to be read and written.
  bool keeps_facts() const { return !cache.empty() && cache != "off"; }
  /// What a caller gave beside the environment; empty changes nothing. As check_transport().
  Status set_transport(std::string_view name);
};

/// kInvalidArgument with the known ones where no transport is called so.
Status check_transport(std::string_view name);

/// One row of the table, for `unisono info` and docs.
struct ConfigVariable {
  std::string_view name;
  std::string_view type;
  std::string_view default_value;
  std::string_view meaning;
  bool secret = false;
};
std::span<const ConfigVariable> config_variables();
/// The value in force as text; secrets as "(set)" or "(not set)".
std::string value_text(const Config& config, std::string_view name);

}  // namespace unisono
