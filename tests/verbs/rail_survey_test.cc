// What is said of each port before any is used, and why one is not.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "rail_scripted_api.h"
#include "tests/support/temporary_folder.h"

namespace unisono::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PortSurveyTest : public ::testing::Test {
 protected:
  ~PortSurveyTest() override { EXPECT_EQ(api_.open.sum(), 0) << "something was left open"; }

  std::vector<PortSurvey> survey() {
    Result<std::vector<PortSurvey>> surveys = survey_ports(api_, options_);
    EXPECT_TRUE(surveys) << surveys.status().message();
    return surveys ? *surveys : std::vector<PortSurvey>{};
  }
  PortSurvey survey_of(ScriptedPort port) {
    api_.devices.clear();
    api_.devices.push_back(device_of("mlx5_0", {std::move(port)}));
    std::vector<PortSurvey> surveys = survey();
    return surveys.empty() ? PortSurvey{} : surveys.front();
  }
  std::string chosen_gid(std::vector<ibv_gid_entry> gids) {
    ScriptedPort port = roce_port();
    port.gids = std::move(gids);
    const PortSurvey found = survey_of(port);
    if (!found.shown.usable) return "none: " + found.shown.reason;
    return std::to_string(found.gid_index) + " " + found.shown.gid_type + " " + found.shown.gid;
  }
  std::string usable_ports() {
    std::string text;
    for (const PortSurvey& port : survey()) {
      if (port.shown.usable) text += (text.empty() ? "" : ", ") + port_name(port.shown);
    }
    return text;
  }

  ScriptedApi api_;
  VerbsOptions options_;
};

TEST_F(PortSurveyTest, ListsEveryPortOfEveryDevice) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port(), infiniband_port()}));
  api_.devices.push_back(device_of("rxe0", {roce_port()}));
  EXPECT_EQ(usable_ports(), "mlx5_0 port 1, mlx5_0 port 2, rxe0 port 1");
}

TEST_F(PortSurveyTest, ShowsWhatThePortIs) {
  const PortSurvey port = survey_of(roce_port("::ffff:10.1.2.3"));
  EXPECT_TRUE(port.shown.usable);
  EXPECT_EQ(port.shown.state, "ACTIVE");
  EXPECT_EQ(port.shown.link_layer, "Ethernet");
  EXPECT_EQ(port.shown.gid, "::ffff:10.1.2.3");
  EXPECT_EQ(port.shown.gid_type, "RoCE v2");
  EXPECT_EQ(port.shown.gid_index, 3);
  EXPECT_EQ(port.shown.mtu_bytes, 4096);
  EXPECT_EQ(port.shown.gigabits_per_second, 100);
  EXPECT_EQ(port.message_bytes, std::size_t{1} << 30);
  EXPECT_EQ(port.rd_atomic_max, 12) << "the smaller of the two directions";
  EXPECT_EQ(port.srq_entries_max, 32767);
  EXPECT_EQ(port.cq_entries_max, 1 << 20);
  EXPECT_EQ(port.qp_entries_max, 8192);
}

TEST_F(PortSurveyTest, UsesOnlyNamedDevicesAndPorts) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port(), roce_port()}));
  api_.devices.push_back(device_of("mlx5_1", {roce_port(), roce_port()}));
  options_.devices = "mlx5_1:2,mlx5_0";
  EXPECT_EQ(usable_ports(), "mlx5_0 port 1, mlx5_0 port 2, mlx5_1 port 2");
  EXPECT_THAT(survey()[2].shown.reason, HasSubstr("left out by the option devices"));
}

TEST_F(PortSurveyTest, LeavesOutWhatFollowsACaret) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port(), roce_port()}));
  api_.devices.push_back(device_of("mlx5_1", {roce_port(), roce_port()}));
  options_.devices = "^mlx5_1:2,mlx5_0";
  EXPECT_EQ(usable_ports(), "mlx5_1 port 1");
}

TEST_F(PortSurveyTest, ADeviceNameIsNotAPrefix) {
  api_.devices.push_back(device_of("mlx5_1", {roce_port()}));
  api_.devices.push_back(device_of("mlx5_10", {roce_port()}));
  options_.devices = "mlx5_1";
  EXPECT_EQ(usable_ports(), "mlx5_1 port 1");
}

TEST_F(PortSurveyTest, NamesAnUnknownDeviceAndTheKnownOnes) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port()}));
  api_.devices.push_back(device_of("rxe0", {roce_port()}));
  for (const char* devices : {"mlx5_7", "^mlx5_7", "rxe0,mlx5_7"}) {
    options_.devices = devices;
    const Result<std::vector<PortSurvey>> surveys = survey_ports(api_, options_);
    ASSERT_FALSE(surveys) << devices;
    EXPECT_EQ(surveys.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(surveys.error().message(),
                AllOf(HasSubstr("no mlx5_7"), HasSubstr("mlx5_0 port 1, rxe0 port 1")));
  }
  options_.devices = "rxe0:2";
  const Result<std::vector<PortSurvey>> surveys = survey_ports(api_, options_);
  ASSERT_FALSE(surveys);
  EXPECT_THAT(surveys.error().message(), HasSubstr("no rxe0 port 2"));
}

TEST_F(PortSurveyTest, SaysWhyAPortThatIsNotActiveCannotBeUsed) {
  const auto reason = [this](ScriptedPort port, ibv_port_state state) {
    port.attributes.state = state;
    const PortSurvey found = survey_of(port);
    EXPECT_FALSE(found.shown.usable);
    return found.shown.state + ": " + found.shown.reason;
  };
  EXPECT_THAT(reason(roce_port(), IBV_PORT_DOWN), AllOf(HasSubstr("DOWN"), HasSubstr("ip link")));
  EXPECT_THAT(reason(infiniband_port(), IBV_PORT_DOWN), HasSubstr("cable"));
  EXPECT_THAT(reason(infiniband_port(), IBV_PORT_INIT),
              AllOf(HasSubstr("INIT"), HasSubstr("no subnet manager")));
  EXPECT_THAT(reason(infiniband_port(), IBV_PORT_ARMED), HasSubstr("subnet manager"));
  EXPECT_THAT(reason(roce_port(), static_cast<ibv_port_state>(7)), HasSubstr("state 7"));
}

TEST_F(PortSurveyTest, PrefersRoceVersion2WithAnIpv4Address) {
  const auto v1 = [](const char* text) { return gid_entry(IBV_GID_TYPE_ROCE_V1, text); };
  const auto v2 = [](const char* text) { return gid_entry(IBV_GID_TYPE_ROCE_V2, text); };
  EXPECT_EQ(chosen_gid({v2("fe80::1"), v2("fd00::7"), v1("::ffff:10.0.0.1"), v2("::ffff:10.0.0.1"),
                        v2("::ffff:10.0.0.2")}),
            "3 RoCE v2 ::ffff:10.0.0.1");
  EXPECT_EQ(chosen_gid({v2("fe80::1"), v1("::ffff:10.0.0.1"), v2("fd00::7")}), "2 RoCE v2 fd00::7");
  EXPECT_EQ(chosen_gid({v2("fe80::1"), v1("fd00::7"), v1("::ffff:10.0.0.1")}),
            "2 RoCE v1 ::ffff:10.0.0.1");
  EXPECT_EQ(chosen_gid({v1("fe80::1"), v2("fe80::1")}), "1 RoCE v2 fe80::1");
  EXPECT_EQ(chosen_gid({v2("::ffff:169.254.3.4"), v2("::ffff:127.0.0.1"), v2("fd00::7")}),
            "2 RoCE v2 fd00::7");
  EXPECT_EQ(chosen_gid({v2("::1"), v2("::ffff:127.0.0.1")}), "0 RoCE v2 ::1")
      << "loopback where there is nothing else";
  EXPECT_EQ(chosen_gid({v2(""), v2(""), v2("fd00::7"), v2("")}), "2 RoCE v2 fd00::7")
      << "empty entries are passed over";
}

TEST_F(PortSurveyTest, ChoosesAGidByTypeOrAddress) {
  const std::vector<ibv_gid_entry> gids = roce_port().gids;
  options_.gid = "rocev1";
  EXPECT_EQ(chosen_gid(gids), "2 RoCE v1 ::ffff:10.0.0.1");
  options_.gid = "10.0.0.1";
  EXPECT_EQ(chosen_gid(gids), "3 RoCE v2 ::ffff:10.0.0.1");
  options_.gid = "::ffff:10.0.0.1";
  EXPECT_EQ(chosen_gid(gids), "3 RoCE v2 ::ffff:10.0.0.1");
  options_.gid = "fe80::1";
  EXPECT_EQ(chosen_gid(gids), "1 RoCE v2 fe80::1");
  options_.gid = "10.0.0.9";
  EXPECT_THAT(chosen_gid(gids),
              AllOf(HasSubstr("none: no GID with the address ::ffff:10.0.0.9"),
                    HasSubstr("fe80::1 (RoCE v1)"), HasSubstr("::ffff:10.0.0.1 (RoCE v2)")));
  options_.gid = "ib";
  EXPECT_THAT(chosen_gid(gids), HasSubstr("no GID of type InfiniBand"));
}

TEST_F(PortSurveyTest, OnInfinibandTakesTheFirstGlobalGidElseTheFirst) {
  ScriptedPort port = infiniband_port();
  EXPECT_EQ(survey_of(port).shown.gid, "fe80::2:c903");
  EXPECT_EQ(survey_of(port).shown.gid_type, "InfiniBand");
  port.gids.push_back(gid_entry(IBV_GID_TYPE_IB, "fec0::1"));
  port.gids.push_back(gid_entry(IBV_GID_TYPE_IB, "fec0::2"));
  EXPECT_EQ(survey_of(port).gid_index, 1);
  options_.gid = "rocev2";
  EXPECT_THAT(survey_of(port).shown.reason, HasSubstr("no GID of type RoCE v2"));
}

TEST_F(PortSurveyTest, SaysWhyThereIsNoGid) {
  EXPECT_THAT(chosen_gid({}), HasSubstr("give its network interface an address"));
  api_.failing["query_gid_ex"] = EOPNOTSUPP;
  EXPECT_THAT(chosen_gid(roce_port().gids), HasSubstr("rdma-core 33"));
  api_.failing["query_gid_ex"] = EIO;
  EXPECT_THAT(chosen_gid(roce_port().gids), HasSubstr(std::strerror(EIO)));
}

TEST_F(PortSurveyTest, FindsThePartitionAndPrefersFullMembership) {
  ScriptedPort port = infiniband_port();
  port.pkeys = {0xffff, 0, 0x0001, 0x8001};
  options_.partition_key = 0x8001;
  EXPECT_EQ(survey_of(port).pkey_index, 3);
  EXPECT_EQ(survey_of(port).pkey, 0x8001);
  options_.partition_key = 0x0001;
  EXPECT_EQ(survey_of(port).pkey_index, 3);
  port.pkeys = {0xffff, 0x8001, 0x0001, 0x8001};
  EXPECT_EQ(survey_of(port).pkey_index, 1) << "the first of several";
  port.pkeys = {0xffff, 0x0001};
  EXPECT_EQ(survey_of(port).pkey_index, 1);
  EXPECT_EQ(survey_of(port).pkey, 0x0001);
}

TEST_F(PortSurveyTest, SaysWhichPartitionsThereAre) {
  ScriptedPort port = infiniband_port();
  port.pkeys = {0x7fff, 0x8002};
  EXPECT_THAT(survey_of(port).shown.reason, HasSubstr("limited member of partition 0x7fff"));
  options_.partition_key = 0x8009;
  EXPECT_THAT(survey_of(port).shown.reason,
              AllOf(HasSubstr("0x8009 is not in the port's table (0x7fff, 0x8002)"),
                    HasSubstr("subnet manager")));
  options_.partition_key = 0x8001;
  EXPECT_THAT(survey_of(roce_port()).shown.reason, HasSubstr("VLAN"));
  port.pkeys = {0};
  EXPECT_THAT(survey_of(port).shown.reason, HasSubstr("it is empty"));
}

TEST_F(PortSurveyTest, ReckonsTheRateFromSpeedAndWidth) {
  struct Case {
    int speed, width;
    double gigabits;
  };
  for (const Case& rate : {Case{1, 1, 2.5}, Case{4, 2, 40}, Case{8, 2, 40}, Case{16, 2, 56},
                           Case{32, 2, 100}, Case{64, 2, 200}, Case{64, 16, 100}, Case{128, 2, 400},
                           Case{128, 4, 800}, Case{2, 8, 60}, Case{3, 2, 0}}) {
    ScriptedPort port = roce_port();
    port.attributes.active_speed = static_cast<std::uint8_t>(rate.speed);
    port.attributes.active_width = static_cast<std::uint8_t>(rate.width);
    EXPECT_EQ(survey_of(port).shown.gigabits_per_second, rate.gigabits)
        << "speed " << rate.speed << " width " << rate.width;
  }
}

TEST_F(PortSurveyTest, TakesTheSmallerMessageLimit) {
  options_.message_bytes_max = 65536;
  EXPECT_EQ(survey_of(roce_port()).message_bytes, 65536u);
  ScriptedPort port = roce_port();
  port.attributes.max_msg_sz = 4096;
  EXPECT_EQ(survey_of(port).message_bytes, 4096u);
}

TEST_F(PortSurveyTest, RefusesDevicesWithoutWhatTheTransportNeeds) {
  const auto reason = [this](auto change) {
    api_.devices.clear();
    ScriptedDevice device = device_of("odd0", {roce_port()});
    change(device);
    api_.devices.push_back(device);
    const std::vector<PortSurvey> ports = survey();
    EXPECT_THAT(ports, SizeIs(1));
    EXPECT_FALSE(ports.at(0).shown.usable);
    return ports.at(0).shown.reason;
  };
  EXPECT_THAT(reason([](auto& d) { d.handle.transport_type = IBV_TRANSPORT_IWARP; }),
              HasSubstr("iWARP"));
  EXPECT_THAT(reason([](auto& d) { d.attributes.max_qp_rd_atom = 0; }), HasSubstr("RDMA reads"));
  EXPECT_THAT(reason([](auto& d) { d.attributes.max_srq = 0; }), HasSubstr("shared receive"));
  EXPECT_THAT(reason([](auto& d) { d.attributes.max_cqe = 0; }), HasSubstr("max_cqe 0"));
  EXPECT_THAT(reason([](auto& d) { d.ports[0].attributes.max_msg_sz = 0; }),
              HasSubstr("max_msg_sz"));
  EXPECT_THAT(reason([](auto& d) { d.ports[0].attributes.active_mtu = ibv_mtu(0); }),
              HasSubstr("MTU"));
}

TEST_F(PortSurveyTest, ADeviceThatCannotBeOpenedDoesNotHideTheOthers) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port()}));
  api_.devices.push_back(device_of("mlx5_1", {roce_port()}));
  api_.failing["open_device mlx5_0"] = EACCES;
  EXPECT_EQ(usable_ports(), "mlx5_1 port 1");
  EXPECT_THAT(survey()[0].shown.reason,
              AllOf(HasSubstr("ibv_open_device failed"), HasSubstr("uverbs")));
  options_.devices = "mlx5_0:2";
  EXPECT_EQ(usable_ports(), "") << "its ports are not known, so this is no unknown port";
}

TEST_F(PortSurveyTest, FailedQueriesAreReasonsAndLeaveNothingOpen) {
  api_.devices.push_back(device_of("mlx5_0", {roce_port()}));
  for (const char* call : {"query_device", "query_port", "query_pkey", "query_gid_ex"}) {
    api_.failing = {{call, EIO}};
    const std::vector<PortSurvey> ports = survey();
    ASSERT_THAT(ports, SizeIs(1)) << call;
    EXPECT_FALSE(ports[0].shown.usable) << call;
    EXPECT_FALSE(ports[0].shown.reason.empty()) << call;
    EXPECT_EQ(api_.open.sum(), 0) << call;
  }
}

TEST_F(PortSurveyTest, SaysWhyThereIsNoDevice) {
  const Result<std::vector<PortSurvey>> none = survey_ports(api_, options_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(none.error().message(), HasSubstr("no verbs device: "));
  api_.failing["get_device_list"] = ENOSYS;
  const Result<std::vector<PortSurvey>> failed = survey_ports(api_, options_);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message(), HasSubstr(std::strerror(ENOSYS)));
}

class NoDeviceTest : public ::testing::Test {
 protected:
  void make_folder(const std::string& path) { std::filesystem::create_directories(root_ + path); }
  void make_file(const std::string& path) { std::ofstream(root_ + path) << "\n"; }

  const test::TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
};

TEST_F(NoDeviceTest, NamesTheFirstThingThatIsMissing) {
  EXPECT_THAT(why_no_device(root_), HasSubstr("no RDMA device"));
  make_folder("/sys/class/infiniband");
  EXPECT_THAT(why_no_device(root_), HasSubstr("no RDMA device"));
  make_folder("/sys/class/infiniband/mlx5_0");
  EXPECT_THAT(why_no_device(root_), AllOf(HasSubstr("mlx5_0"), HasSubstr("modprobe ib_uverbs")));
  make_folder("/sys/class/infiniband_verbs/uverbs0");
  EXPECT_THAT(why_no_device(root_),
              AllOf(HasSubstr("no /dev/infiniband/uverbs*"), HasSubstr("udev")));
  make_file("/.dockerenv");
  EXPECT_THAT(why_no_device(root_), AllOf(HasSubstr("not passed into this container"),
                                          HasSubstr("--device=/dev/infiniband")));
  make_folder("/dev/infiniband/uverbs0");  // a folder cannot be opened for writing
  EXPECT_THAT(why_no_device(root_), HasSubstr("uverbs0 cannot be opened"));
  std::filesystem::remove(root_ + "/dev/infiniband/uverbs0");
  make_file("/dev/infiniband/uverbs0");
  EXPECT_THAT(why_no_device(root_), HasSubstr("ibverbs-providers"));
}

TEST_F(NoDeviceTest, NamesPermissionWhereThatIsWhatIsMissing) {
  if (geteuid() == 0) GTEST_SKIP() << "root may open everything";
  make_folder("/sys/class/infiniband/mlx5_0");
  make_folder("/sys/class/infiniband_verbs/uverbs0");
  make_folder("/dev/infiniband");
  make_file("/dev/infiniband/uverbs0");
  std::filesystem::permissions(root_ + "/dev/infiniband/uverbs0", std::filesystem::perms::none);
  EXPECT_THAT(why_no_device(root_), HasSubstr("give this user read and write"));
}

Status checked(void (*change)(VerbsOptions&)) {
  VerbsOptions options;
  change(options);
  return check_options(options);
}

TEST(VerbsOptionsCheck, AcceptsDefaultsAndLimits) {
  EXPECT_TRUE(check_options(VerbsOptions{}));
  for (const char* devices : {"mlx5_0", "mlx5_0:1,mlx5_1:255", "^rxe0,siw-1.a"}) {
    VerbsOptions options;
    options.devices = devices;
    EXPECT_TRUE(check_options(options)) << devices;
  }
  for (const char* gid : {"auto", "rocev2", "rocev1", "ib", "10.1.2.3", "fd00::7"}) {
    VerbsOptions options;
    options.gid = gid;
    EXPECT_TRUE(check_options(options)) << gid;
  }
}

TEST(VerbsOptionsCheck, NamesTheOptionItsValueAndWhatIsAccepted) {
  struct Case {
    void (*change)(VerbsOptions&);
    const char* says;
  };
  const Case cases[] = {
      {[](VerbsOptions& o) { o.size = 0; }, "size is 0; accepted: at least 1"},
      {[](VerbsOptions& o) { o.rank = 1; }, "rank is 1; accepted: 0 to 0"},
      {[](VerbsOptions& o) { o.service_level = 16; }, "service_level is 16; accepted: 0 to 15"},
      {[](VerbsOptions& o) { o.traffic_class = -1; }, "traffic_class is -1; accepted: 0 to 255"},
      {[](VerbsOptions& o) { o.partition_key = 0x8000; }, "partition_key is 32768"},
      {[](VerbsOptions& o) { o.partition_key = 0x10000; }, "partition_key is 65536"},
      {[](VerbsOptions& o) { o.queue_pairs = 0; }, "queue_pairs is 0; accepted: 1 to 16"},
      {[](VerbsOptions& o) { o.ack_timeout = 0; }, "ack_timeout is 0; accepted: 1 to 31"},
      {[](VerbsOptions& o) { o.retries = 7; }, "retries is 7; accepted: 0 to 6"},
      {[](VerbsOptions& o) { o.message_bytes_max = 63; }, "message_bytes_max is 63"},
      {[](VerbsOptions& o) { o.ring_bytes = 4096 + 32; }, "ring_bytes is 4128"},
      {[](VerbsOptions& o) { o.ring_bytes = 0; }, "ring_bytes is 0"},
      {[](VerbsOptions& o) { o.gid = "3"; }, "gid is '3'; accepted: 'auto'"},
      {[](VerbsOptions& o) { o.gid = ""; }, "gid is ''"},
  };
  for (const Case& each : cases) {
    const Status status = checked(each.change);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << each.says;
    EXPECT_THAT(status.message(), HasSubstr(each.says));
  }
}

TEST(VerbsOptionsCheck, RefusesMalformedDeviceLists) {
  for (const char* devices : {",", "a,", ",a", "a,,b", "^", "^^a", "a:", ":1", "a:0", "a:256",
                              "a:1x", "a: 1", "a b", "a:-1", "a:99999999999", "../uverbs0"}) {
    VerbsOptions options;
    options.devices = devices;
    const Status status = check_options(options);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << devices;
    EXPECT_THAT(status.message(), HasSubstr("devices is '" + std::string(devices) + "'"));
  }
}

TEST(VerbsProbe, AgreesWithTheListOfPorts) {
  const VerbsOptions options;
  const Result<std::vector<VerbsPort>> ports = list_verbs_ports(options);
  const Probe probe = probe_verbs_transport(options);
  EXPECT_FALSE(probe.reason.empty());
  bool any = false;
  if (ports) {
    for (const VerbsPort& port : *ports) any = any || port.usable;
  } else {
    EXPECT_EQ(probe.reason, ports.error().message());
  }
  EXPECT_EQ(probe.usable, any);
}

TEST(VerbsProbe, ChecksOptionsBeforeTheMachine) {
  VerbsOptions options;
  options.retries = 7;
  EXPECT_EQ(list_verbs_ports(options).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(probe_verbs_transport(options).reason, HasSubstr("retries"));
}

}  // namespace
}  // namespace unisono::verbs
