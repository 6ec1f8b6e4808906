// Connections whose rank is not known yet: they authenticate (TCP: the job key; UNIX: the user, and
// the key where the job was given one and meets at a file or store) and introduce themselves, both
// within kStrangerTime, or go. Their number is bounded; who comes when it is reached takes the
// place of the least promising (base/unproven_peers.h), so that strangers cannot keep ranks out
// however many come, and none of them can fail the job. Owned by the arbiter's loop; its thread
// only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/handshake.h"
#include "base/line_limit.h"
#include "base/unproven_peers.h"
#include "rendezvous/messages/rejoin_message.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {

/// The job id in handshakes where ranks know no other before they have met.
inline constexpr const char* kRendezvousJobId = "unisono rendezvous";

class Strangers {
 public:
  struct Arrival {
    ControlStream stream;
    JoinMessage join;
    RejoinMessage rejoin;  ///< instead, where those of a met world come
    std::string launcher;  ///< instead, where launchers come: what the first message says
    Rank peer;             ///< who it is, by its word and its proof
    bool proved_key;
  };
  /// To whom they come.
  struct Host {
    std::string job_id;
    JobKey key;
    Rank rank = 0;
    int met_size = 0;  ///< of the world whose ranks come again; 0: they join for the first time
    HandshakePurpose purpose = HandshakePurpose::kControl;
    std::function<void(const std::string& line)> say = {};  ///< empty: the log
  };

  explicit Strangers(Host host) : host_(std::move(host)) {}

  /// False for moments in which no stranger can make room for another one: who comes then waits in
  /// the listener's backlog.
  bool accepting(TimePoint now) const;
  /// Takes one connection from `listener`. Its descriptor, or -1 when there was none to keep.
  int accept(const Listener& listener, TimePoint now);
  /// Rank 0's end of a socket pair; needs no proof. Returns its descriptor.
  int add_local(GuardedFd fd, TimePoint now);

  /// The descriptors of all.
  std::vector<int> held() const;
  bool holds(int fd) const { return strangers_.count(fd) > 0; }
  /// Goes on with the stranger `fd`. Returns an arrival when it has introduced itself. A stranger
  /// that has arrived or was turned away is no longer held.
  std::optional<Arrival> read(int fd, TimePoint now);
  void turn_away(int fd, std::string_view why, TimePoint now);
  /// Turns away who took too long.
  void expire(TimePoint now);
  TimePoint next_due(TimePoint now) const;
  void clear() { strangers_.clear(); }

 private:
  struct Stranger {
    ControlStream stream;
    std::optional<Handshake> handshake;
    TimePoint since;
    std::string who;
    std::string source;
    TimePoint advanced;    // came, or greeted
    bool greeted = false;  // with what only a program of this kind says
    bool local = false;    // rank 0's own end, which has all the time it wants
    bool is_unproven() const { return !local && !(handshake && handshake->done()); }
  };
  using Entry = std::map<int, Stranger>::iterator;

  bool is_full() const { return strangers_.size() >= kStrangersMax; }
  /// Whose place a newcomer takes: its descriptor, or -1.
  int least_promising_at(TimePoint now) const;
  void evict(int fd, TimePoint now);
  Status authenticate(Stranger* stranger);
  /// The rank that it says it is by its first message.
  Result<Rank> read_greeting(const Message& message, JoinMessage* join,
                             RejoinMessage* rejoin) const;
  bool awaits_launchers() const { return host_.purpose == HandshakePurpose::kLauncher; }
  void turn_away(Entry entry, std::string_view why, TimePoint now);
  void log_stranger(std::string_view who, std::string_view why, TimePoint now);
  void say(std::string_view what, TimePoint now);
  /// When `stranger` will have had its time.
  TimePoint due(const Stranger& stranger) const;

  // Of the log, about strangers: no flood of connections fills a disk.
  static constexpr int kLinesAtOnce = 5;
  static constexpr std::chrono::seconds kBetweenLines{2};

  Host host_;
  std::map<int, Stranger> strangers_;
  TimePoint paused_ = TimePoint::min();  // accept() ran out of descriptors
  LineLimit lines_{kLinesAtOnce, kBetweenLines};
};

}  // namespace unisono::rendezvous
