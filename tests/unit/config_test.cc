// The table of environment variables: what each accepts, what it refuses, and how it is shown.
#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/verbs_settings.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// One variable for the time of a test; the environment of the test program has no other.
class Setting {
 public:
  Setting(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Setting() { unsetenv(name_.c_str()); }
  Setting(const Setting&) = delete;

 private:
  std::string name_;
};

std::string shown(const std::string& name, const std::string& value) {
  const Setting setting(name, value);
  const Result<Config> config = Config::from_environment();
  return config ? value_text(*config, name) : config.error().message();
}

TEST(Config, ShowsTheDefaultOfEveryVariableAsTheTableHasIt) {
  const Config config;
  for (const ConfigVariable& variable : config_variables()) {
    if (variable.secret || variable.type == "size") continue;
    EXPECT_EQ(value_text(config, variable.name), variable.default_value) << variable.name;
  }
}

TEST(Config, ReadsTheSizesOfTheTableAsItsDefaults) {
  const Config config;
  for (const ConfigVariable& variable : config_variables()) {
    if (variable.type != "size") continue;
    const std::string name(variable.name);
    EXPECT_EQ(shown(name, std::string(variable.default_value)), value_text(config, name)) << name;
  }
}

TEST(Config, TakesTheVerbsTransport) {
  EXPECT_EQ(shown("UNISONO_TRANSPORT", "verbs"), "verbs");
  EXPECT_THAT(shown("UNISONO_TRANSPORT", "rdma"),
              HasSubstr("one of auto, shm, tcp, unix, verbs, loopback"));
}

TEST(Config, TakesVerbsSettingsWithinTheirRanges) {
  const struct {
    const char* name;
    const char* value;
    const char* shown;
  } good[]{
      {"UNISONO_VERBS_DEVICES", "mlx5_0", "mlx5_0"},
      {"UNISONO_VERBS_DEVICES", "^mlx5_0:1,rocep1s0f0.2-x:255", "^mlx5_0:1,rocep1s0f0.2-x:255"},
      {"UNISONO_VERBS_GID", "rocev1", "rocev1"},
      {"UNISONO_VERBS_GID", "10.1.2.3", "10.1.2.3"},
      {"UNISONO_VERBS_GID", "fd00::7", "fd00::7"},
      {"UNISONO_VERBS_CONNECT", "cm", "cm"},
      {"UNISONO_VERBS_SERVICE_LEVEL", "15", "15"},
      {"UNISONO_VERBS_TRAFFIC_CLASS", "255", "255"},
      {"UNISONO_VERBS_PARTITION", "0x8001", "0x8001"},
      {"UNISONO_VERBS_PARTITION", "0XABC", "0xabc"},
      {"UNISONO_VERBS_PARTITION", "32769", "0x8001"},
      {"UNISONO_VERBS_QUEUE_PAIRS", "16", "16"},
      {"UNISONO_VERBS_ACK_TIMEOUT", "1", "1"},
      {"UNISONO_VERBS_ACK_TIMEOUT", "31", "31"},
      {"UNISONO_VERBS_RETRIES", "0", "0"},
      {"UNISONO_VERBS_RELAXED_ORDERING", "off", "off"},
      {"UNISONO_VERBS_REGISTERED", "64M", "67108864"},
  };
  for (const auto& each : good) EXPECT_EQ(shown(each.name, each.value), each.shown) << each.name;
}

TEST(Config, NamesTheVerbsSettingItsValueAndWhatIsAccepted) {
  const struct {
    const char* name;
    std::vector<std::string> values;
    const char* accepted;
  } bad[]{
      {"UNISONO_VERBS_DEVICES",
       {"^", ",", "mlx5_0,", ",mlx5_0", "mlx5 0", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "a:1:2",
        "a,^b", "../x"},
       "mlx5_0,mlx5_1:2"},
      {"UNISONO_VERBS_GID", {"3", "rocev3", "10.1.2", "fd00::g", "AUTO"}, "never an index"},
      {"UNISONO_VERBS_CONNECT", {"CM", "rdma_cm", "on"}, "one of exchange, cm"},
      {"UNISONO_VERBS_SERVICE_LEVEL", {"-1", "16", "x"}, "from 0 to 15"},
      {"UNISONO_VERBS_TRAFFIC_CLASS", {"-1", "256", "0x10"}, "from 0 to 255"},
      {"UNISONO_VERBS_PARTITION",
       {"0", "0x", "0x8000", "65536", "0x10000", "-1", "ffff", "0x1g", "99999999999"},
       "from 0x1 to 0xffff"},
      {"UNISONO_VERBS_QUEUE_PAIRS", {"0", "17"}, "from 1 to 16"},
      {"UNISONO_VERBS_ACK_TIMEOUT", {"0", "32"}, "from 1 to 31"},
      {"UNISONO_VERBS_RETRIES", {"-1", "7"}, "from 0 to 6"},
      {"UNISONO_VERBS_RELAXED_ORDERING", {"yes", "1", "ON"}, "on or off"},
      {"UNISONO_VERBS_REGISTERED", {"0", "-1", "4T", "lots", "1048577G"}, "a size"},
  };
  for (const auto& each : bad) {
    for (const std::string& value : each.values) {
      EXPECT_THAT(shown(each.name, value),
                  AllOf(HasSubstr(std::string(each.name) + "=" + value + ": expected "),
                        HasSubstr(each.accepted)));
    }
  }
}

TEST(Config, TakesHowGpusAreUsedAndWhichDriver) {
  EXPECT_EQ(value_text(Config{}, "UNISONO_CUDA"), "auto");
  EXPECT_EQ(shown("UNISONO_CUDA", "require"), "require");
  EXPECT_EQ(shown("UNISONO_CUDA", "off"), "off");
  EXPECT_EQ(shown("UNISONO_CUDA_LIBRARY", "/opt/driver/libcuda.so.1"), "/opt/driver/libcuda.so.1");
  EXPECT_EQ(shown("UNISONO_CUBLAS_LIBRARY", "/opt/cuda/libcublas.so.13"),
            "/opt/cuda/libcublas.so.13");
  for (const char* value : {"on", "OFF", "0", "required"}) {
    EXPECT_THAT(shown("UNISONO_CUDA", value),
                AllOf(HasSubstr("UNISONO_CUDA=" + std::string(value) + ": expected "),
                      HasSubstr("one of off, auto, require")));
  }
}

TEST(Config, ReportsAVariableThatItDoesNotKnow) {
  const Setting setting("UNISONO_VERBS_PORTS", "1");
  const Result<Config> config = Config::from_environment();
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("unknown variable UNISONO_VERBS_PORTS"));
}

TEST(VerbsSettings, HaveTheDefaultsOfTheTransport) {
  const VerbsOptions given = verbs_options(Config{}, 3, 8);
  const VerbsOptions own;
  EXPECT_EQ(given.rank, 3);
  EXPECT_EQ(given.size, 8);
  EXPECT_EQ(given.devices, own.devices);
  EXPECT_EQ(given.gid, own.gid);
  EXPECT_EQ(given.service_level, own.service_level);
  EXPECT_EQ(given.traffic_class, own.traffic_class);
  EXPECT_EQ(given.partition_key, own.partition_key);
  EXPECT_EQ(given.queue_pairs, own.queue_pairs);
  EXPECT_EQ(given.ack_timeout, own.ack_timeout);
  EXPECT_EQ(given.retries, own.retries);
  EXPECT_EQ(given.relaxed_ordering, own.relaxed_ordering);
  EXPECT_EQ(given.registered_bytes_max, own.registered_bytes_max);
}

TEST(VerbsSettings, ReachTheTransport) {
  Config config;
  config.verbs = {.devices = "mlx5_1",
                  .gid = "rocev2",
                  .service_level = 3,
                  .traffic_class = 104,
                  .partition_key = 0x8001,
                  .queue_pairs = 4,
                  .ack_timeout = 18,
                  .retries = 5,
                  .relaxed_ordering = false,
                  .registered_bytes = 4096};
  const VerbsOptions options = verbs_options(config, 0, 2);
  EXPECT_EQ(options.devices, "mlx5_1");
  EXPECT_EQ(options.gid, "rocev2");
  EXPECT_EQ(options.service_level, 3);
  EXPECT_EQ(options.traffic_class, 104);
  EXPECT_EQ(options.partition_key, 0x8001);
  EXPECT_EQ(options.queue_pairs, 4);
  EXPECT_EQ(options.ack_timeout, 18);
  EXPECT_EQ(options.retries, 5);
  EXPECT_FALSE(options.relaxed_ordering);
  EXPECT_EQ(options.registered_bytes_max, 4096u);
}

}  // namespace
}  // namespace unisono::test
