// rdma_cm as a test writes it down: which questions fail how, which answers come late, never or out
// of order, and what the answer is. Counts what is open. An answer is there as soon as it is asked
// for, unless the test says otherwise. One thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/cm_api.h"

namespace unisono::verbs {

class ScriptedCm final : public CmApi {
 public:
  struct Answer {
    rdma_cm_event_type type;
    int status = 0;
  };
  /// What was asked for.
  struct Question {
    std::string source, target;  ///< "10.0.0.1"; of InfiniBand "fe80::1 pkey ffff"
    int traffic_class = -1;      ///< as an option; of InfiniBand as an address has it
  };

  ScriptedCm() {
    record.mtu = 5;
    record.hop_limit = 64;
    record.packet_life_time = 16;
  }
  ~ScriptedCm() override {
    EXPECT_EQ(channels, 0) << "an event channel was left open";
    EXPECT_EQ(ids, 0) << "ids were left";
    EXPECT_EQ(unacknowledged, 0) << "events were not acknowledged";
  }

  std::map<std::string, int> failing;  ///< errno of every such call, "resolve_addr"
  bool silent = false;                 ///< questions get no answer while it holds
  /// Instead of success, to the next questions.
  std::deque<Answer> address_answers, route_answers;
  /// Sources from which nothing is reached, and why.
  std::map<std::string, int> unreachable;
  /// Of the port that an address is taken for. Empty: "fake<n>" of 10.<n>.x.x.
  std::string device;
  int port = 1;
  bool no_path = false;
  ibv_sa_path_rec record{};

  int channels = 0, ids = 0, unacknowledged = 0;
  int looks = 0;  ///< for events
  std::vector<Question> questions;
  int routes_asked = 0;

  /// An event of the oldest id that is open.
  void report(const Answer& answer) {
    ASSERT_FALSE(open_.empty());
    events_.push_back({open_.front(), answer});
  }

  rdma_event_channel* create_event_channel() override {
    if (fails("create_event_channel")) return nullptr;
    ++channels;
    auto* channel = new rdma_event_channel{};
    channel->fd = dup(STDERR_FILENO);
    return channel;
  }
  void destroy_event_channel(rdma_event_channel* channel) override {
    --channels;
    close(channel->fd);
    delete channel;
  }
  int get_cm_event(rdma_event_channel*, rdma_cm_event** event) override {
    ++looks;
    if (silent || events_.empty()) {
      errno = EAGAIN;
      return -1;
    }
    const Pending next = events_.front();
    auto made = std::make_unique<rdma_cm_event>();
    made->id = next.id;
    made->event = next.answer.type;
    made->status = next.answer.status;
    if (made->event == RDMA_CM_EVENT_ADDR_RESOLVED) next.id->bind(device, port);
    if (made->event == RDMA_CM_EVENT_ROUTE_RESOLVED && !no_path) next.id->lead(record);
    // Not before, so that nothing is lost where a test refuses memory.
    events_.pop_front();
    ++unacknowledged;
    ++next.id->unacknowledged;
    *event = made.release();
    return 0;
  }
  int ack_cm_event(rdma_cm_event* event) override {
    --unacknowledged;
    --static_cast<Id*>(event->id)->unacknowledged;
    delete event;
    return 0;
  }
  const char* event_str(rdma_cm_event_type type) override {
    static const std::array kNames{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR"};
    const auto number = static_cast<std::size_t>(type);
    if (number < kNames.size()) return kNames[number];
    if (type == RDMA_CM_EVENT_REJECTED) return "REJECTED";
    return type == RDMA_CM_EVENT_DEVICE_REMOVAL ? "DEVICE_REMOVAL" : "another event";
  }

  int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                rdma_port_space) override {
    if (fails("create_id")) return -1;
    auto made = std::make_unique<Id>();
    made->channel = channel;
    made->context = context;
    open_.push_back(made.get());
    *id = made.release();
    ++ids;
    return 0;
  }
  int destroy_id(rdma_cm_id* id) override {
    auto* mine = static_cast<Id*>(id);
    EXPECT_EQ(mine->unacknowledged, 0) << "the library would wait for ever";
    std::erase(open_, mine);
    std::erase_if(events_, [mine](const Pending& each) { return each.id == mine; });
    --ids;
    delete mine;
    return 0;
  }
  int set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes) override {
    if (fails("set_option")) return -1;
    EXPECT_EQ(level, RDMA_OPTION_ID);
    EXPECT_EQ(name, RDMA_OPTION_ID_TOS);
    EXPECT_EQ(bytes, 1u);
    static_cast<Id*>(id)->traffic_class = *static_cast<std::uint8_t*>(value);
    return 0;
  }
  int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) override {
    if (fails("resolve_addr")) return -1;
    EXPECT_GT(timeout_ms, 0);
    auto* mine = static_cast<Id*>(id);
    mine->source = text_of(source, &mine->traffic_class);
    questions.push_back({mine->source, text_of(target, nullptr), mine->traffic_class});
    const auto bad = unreachable.find(mine->source);
    if (bad != unreachable.end()) {
      events_.push_back({mine, {RDMA_CM_EVENT_ADDR_ERROR, -bad->second}});
    } else {
      events_.push_back({mine, next(address_answers, RDMA_CM_EVENT_ADDR_RESOLVED)});
    }
    return 0;
  }
  int resolve_route(rdma_cm_id* id, int timeout_ms) override {
    if (fails("resolve_route")) return -1;
    EXPECT_GT(timeout_ms, 0);
    ++routes_asked;
    events_.push_back({static_cast<Id*>(id), next(route_answers, RDMA_CM_EVENT_ROUTE_RESOLVED)});
    return 0;
  }

 private:
  struct Id : rdma_cm_id {
    ibv_device owner{};
    ibv_context opened{};
    ibv_sa_path_rec path{};
    std::string source;
    int traffic_class = -1;
    int unacknowledged = 0;

    void bind(const std::string& device, int port) {
      const std::string name =
          !device.empty() ? device : "fake" + source.substr(3, source.find('.', 3) - 3);
      std::strncpy(owner.name, name.c_str(), sizeof(owner.name) - 1);
      opened.device = &owner;
      verbs = &opened;
      port_num = static_cast<std::uint8_t>(port);
    }
    void lead(const ibv_sa_path_rec& record) {
      path = record;
      route.path_rec = &path;
      route.num_paths = 1;
    }
  };
  struct Pending {
    Id* id;
    Answer answer;
  };

  bool fails(const std::string& call) {
    const auto found = failing.find(call);
    if (found == failing.end()) return false;
    errno = found->second;
    return true;
  }
  static Answer next(std::deque<Answer>& answers, rdma_cm_event_type otherwise) {
    if (answers.empty()) return {otherwise};
    const Answer answer = answers.front();
    answers.pop_front();
    return answer;
  }
  static std::string text_of(const sockaddr* address, int* traffic_class) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address->sa_family == AF_INET) {
      const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
      return inet_ntop(AF_INET, &ipv4->sin_addr, text.data(), text.size());
    }
    if (address->sa_family == AF_INET6) {
      const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
      return inet_ntop(AF_INET6, &ipv6->sin6_addr, text.data(), text.size());
    }
    EXPECT_EQ(address->sa_family, AF_IB);
    const auto* infiniband = reinterpret_cast<const sockaddr_ib*>(address);
    if (traffic_class != nullptr) {
      *traffic_class = static_cast<int>(ntohl(infiniband->sib_flowinfo) >> 20);
    }
    std::array<char, 8> key{};
    std::snprintf(key.data(), key.size(), "%x", ntohs(infiniband->sib_pkey));
    return std::string(inet_ntop(AF_INET6, &infiniband->sib_addr, text.data(), text.size())) +
           " pkey " + key.data();
  }

  std::deque<Pending> events_;
  std::vector<Id*> open_;
};

}  // namespace unisono::verbs
