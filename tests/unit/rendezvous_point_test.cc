// URLs and launcher variables to rendezvous points: what is accepted, and what the errors name.
#include "rendezvous/meeting/rendezvous_point.h"

#include <gmock/gmock.h>

namespace unisono {
namespace {

using Kind = RendezvousPoint::Kind;
using testing::HasSubstr;

constexpr const char* kKey = "a text of sixteen or more characters";

LauncherVariables launched(int rank, int size, int local_size) {
  LauncherVariables launcher;
  launcher.rank = rank;
  launcher.world_size = size;
  launcher.local_rank = 0;
  launcher.local_world_size = local_size;
  launcher.master_address = "10.0.0.1";
  launcher.master_port = 29500;
  launcher.run_id = "run";
  return launcher;
}

Result<RendezvousPoint> point_of(std::string_view url, const LauncherVariables& launcher = {},
                                 int port = 0, std::string_view key = kKey) {
  return rendezvous_point_from_url(url, launcher, port, key);
}

TEST(RendezvousPoint, IsAloneWithoutVariables) {
  EXPECT_EQ(point_of("env://")->kind, Kind::kAlone);
  EXPECT_EQ(point_of("")->kind, Kind::kAlone);
  EXPECT_EQ(point_of("alone://")->kind, Kind::kAlone);
  EXPECT_EQ(point_of("env://", launched(0, 1, 1))->kind, Kind::kAlone);
}

TEST(RendezvousPoint, OneHostMeetsAtANameOfItsVariables) {
  const auto first = point_of("env://", launched(0, 4, 4));
  const auto second = point_of("env://", launched(3, 4, 4));
  ASSERT_EQ(first->kind, Kind::kAbstract);
  EXPECT_EQ(first->name, second->name);
  EXPECT_EQ(first->name.size(), std::string("unisono-").size() + 16);
  LauncherVariables other = launched(0, 4, 4);
  other.run_id = "another";
  EXPECT_NE(point_of("env://", other)->name, first->name);
  other = launched(0, 4, 4);
  other.master_port = 29501;
  EXPECT_NE(point_of("env://", other)->name, first->name);
}

TEST(RendezvousPoint, LoopbackAddressWithoutLocalSizeIsOneHost) {
  LauncherVariables launcher = launched(0, 2, -1);
  launcher.master_address = "localhost";
  EXPECT_EQ(point_of("env://", launcher)->kind, Kind::kAbstract);
}

TEST(RendezvousPoint, OneHostNeedsNoKey) {
  EXPECT_TRUE(point_of("env://", launched(0, 4, 4), 0, "").has_value());
}

TEST(RendezvousPoint, SeveralHostsMeetNextToTheMasterPort) {
  const auto point = point_of("env://", launched(0, 4, 2));
  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(point->kind, Kind::kTcp);
  EXPECT_EQ(point->name, "10.0.0.1");
  EXPECT_EQ(point->port, 29501);
  EXPECT_TRUE(point->has_key);
  EXPECT_EQ(point_of("env://", launched(0, 4, 2), 4000)->port, 4000);
}

TEST(RendezvousPoint, NeverBindsThePortOfTheAgentsStore) {
  LauncherVariables launcher = launched(0, 4, 2);
  launcher.agent_store = true;
  const auto point = point_of("env://", launcher, 29500);
  ASSERT_FALSE(point.has_value());
  EXPECT_THAT(point.error().message(), HasSubstr("UNISONO_PORT is 29500"));
}

TEST(RendezvousPoint, LastMasterPortHasNoNeighbour) {
  LauncherVariables launcher = launched(0, 4, 2);
  launcher.master_port = 65535;
  EXPECT_THAT(point_of("env://", launcher).error().message(), HasSubstr("MASTER_PORT is 65535"));
}

TEST(RendezvousPoint, TcpWithoutKeySaysHowToMakeOne) {
  for (const auto& point : {point_of("env://", launched(0, 4, 2), 0, ""),
                            point_of("tcp://127.0.0.1:5000", {}, 0, "")}) {
    ASSERT_FALSE(point.has_value());
    EXPECT_EQ(point.error().code(), ErrorCode::kAuthentication);
    EXPECT_THAT(point.error().message(), HasSubstr("UNISONO_JOB_KEY"));
    EXPECT_THAT(point.error().message(), HasSubstr("openssl rand -hex 32"));
  }
}

TEST(RendezvousPoint, ShortKeyIsRefusedByName) {
  EXPECT_THAT(point_of("tcp://h:1", {}, 0, "short").error().message(),
              HasSubstr("UNISONO_JOB_KEY"));
}

TEST(RendezvousPoint, ReadsHostAndPort) {
  EXPECT_EQ(point_of("tcp://node-1.example:5000")->name, "node-1.example");
  EXPECT_EQ(point_of("tcp://node-1.example:5000")->port, 5000);
  EXPECT_EQ(point_of("tcp://[fe80::1]:5000")->name, "fe80::1");
}

TEST(RendezvousPoint, RefusesMalformedUrlsNamingThePart) {
  for (const char* url : {"tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://host:65536",
                          "tcp://host:12a", "tcp://host:-1", "tcp://host: 1", "tcp://29501"}) {
    EXPECT_THAT(point_of(url).error().message(), HasSubstr("port")) << url;
  }
  for (const char* url : {"tcp://:5000", "tcp://a b:5000", "tcp://fe80::1:5000", "tcp://a/b:1"}) {
    EXPECT_THAT(point_of(url).error().message(), HasSubstr("host")) << url;
  }
  for (const char* url : {"file://", "file://relative", "file:///", "file:///directory/"}) {
    EXPECT_THAT(point_of(url).error().message(), HasSubstr("path")) << url;
  }
  EXPECT_THAT(point_of("ftp://x").error().message(), HasSubstr("'ftp://x' is not known"));
}

TEST(RendezvousPoint, RefusesPortsThatThereAreNot) {
  for (const int port : {-1, 65536}) {
    const auto point = rendezvous_point_from_url("env://", launched(0, 4, 2), port, kKey);
    EXPECT_THAT(point.status().message(), HasSubstr("UNISONO_PORT is")) << port;
  }
}

TEST(RendezvousPoint, FileOfASingleHostJobListensLocallyOnly) {
  EXPECT_EQ(point_of("file:///tmp/x")->name, "/tmp/x");
  EXPECT_FALSE(point_of("file:///tmp/x")->single_host);
  EXPECT_TRUE(point_of("file:///tmp/x", launched(0, 4, 4))->single_host);
  EXPECT_FALSE(point_of("file:///tmp/x", launched(0, 4, 2))->single_host);
}

TEST(RendezvousPoint, AStoreTakesTheJobKey) {
  const auto keyed = rendezvous_point_at_store(nullptr, launched(0, 4, 4), kKey);
  ASSERT_TRUE(keyed.has_value());
  EXPECT_EQ(keyed->kind, Kind::kStore);
  EXPECT_TRUE(keyed->has_key);
  EXPECT_TRUE(keyed->single_host);
  EXPECT_FALSE(rendezvous_point_at_store(nullptr, {}, "")->has_key);
  EXPECT_THAT(rendezvous_point_at_store(nullptr, {}, "short").error().message(),
              HasSubstr("UNISONO_JOB_KEY"));
}

TEST(RendezvousPoint, IncompleteVariablesAreNamed) {
  const auto complaint = [](auto spoil) {
    LauncherVariables launcher = launched(0, 4, 2);
    spoil(&launcher);
    const auto point = point_of("env://", launcher);
    return point ? std::string("no complaint") : point.error().message();
  };
  EXPECT_THAT(complaint([](auto* l) { l->rank = -1; }), HasSubstr("RANK is not"));
  EXPECT_THAT(complaint([](auto* l) { l->world_size = -1; }), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(complaint([](auto* l) { l->rank = 4; }), HasSubstr("RANK is 4"));
  EXPECT_THAT(complaint([](auto* l) { l->local_world_size = 5; }), HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(complaint([](auto* l) { l->master_address = ""; }), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(complaint([](auto* l) {
                l->local_world_size = 4;
                l->master_address = "";
              }),
              HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(complaint([](auto* l) { l->master_address = "a b"; }), HasSubstr("'a b'"));
  EXPECT_THAT(complaint([](auto* l) { l->master_port = -1; }), HasSubstr("MASTER_PORT is not"));
}

LauncherVariables by_mpirun(int local_size) {
  LauncherVariables launcher;
  launcher.launcher = "Open MPI";
  launcher.rank_name = "OMPI_COMM_WORLD_RANK";
  launcher.world_size_name = "OMPI_COMM_WORLD_SIZE";
  launcher.rank = 1;
  launcher.world_size = 4;
  launcher.local_world_size = local_size;
  launcher.run_id = "1234";
  return launcher;
}

TEST(RendezvousPoint, RanksOfMpirunMeetByItsNameOfTheJob) {
  const auto point = point_of("env://", by_mpirun(4), 0, "");
  ASSERT_TRUE(point.has_value()) << point.error().message();
  EXPECT_EQ(point->kind, Kind::kAbstract);
  LauncherVariables other = by_mpirun(4);
  other.run_id = "1235";
  EXPECT_NE(point_of("env://", other)->name, point->name);
}

TEST(RendezvousPoint, RanksOfMpirunOnSeveralHostsMeetWhereTheUserSays) {
  LauncherVariables launcher = by_mpirun(2);
  launcher.master_address = "10.0.0.1";
  launcher.master_port = 29500;
  const auto point = point_of("env://", launcher);
  ASSERT_TRUE(point.has_value()) << point.error().message();
  EXPECT_EQ(point->kind, Kind::kTcp);
  EXPECT_EQ(point->port, 29501);
  EXPECT_EQ(point_of("env://", launcher, 0, "").error().code(), ErrorCode::kAuthentication);
}

TEST(RendezvousPoint, RanksOfMpirunWithoutAPlaceAreToldWhatToSet) {
  LauncherVariables nameless = by_mpirun(4);
  nameless.run_id.clear();
  for (const LauncherVariables& launcher : {by_mpirun(2), by_mpirun(-1), nameless}) {
    const auto point = point_of("env://", launcher);
    ASSERT_FALSE(point.has_value());
    EXPECT_EQ(point.error().code(), ErrorCode::kInvalidArgument);
    for (const char* part : {"Open MPI", "rank 1 of 4", "OMPI_COMM_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "UNISONO_JOB_KEY", "UNISONO_RENDEZVOUS"}) {
      EXPECT_THAT(point.error().message(), HasSubstr(part));
    }
  }
  EXPECT_EQ(point_of("file:///tmp/x", by_mpirun(2))->kind, Kind::kFile);
}

}  // namespace
}  // namespace unisono
