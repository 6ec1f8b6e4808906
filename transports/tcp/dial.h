// The attempts to reach one peer for one stream: address after address, again and again with
// growing pauses. Included by connector.cc only. Shared by the Connector and Asio handlers.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transports/tcp/dial_watch.h"
#include "transports/tcp/handshake_session.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::tcp {

class Dial : public std::enable_shared_from_this<Dial> {
 public:
  /// Told once, unless cancelled: the admitted connection, or why dialling was given up.
  using Done = std::function<void(Result<Connection>)>;

  /// `options` outlives the dial.
  Dial(boost::asio::io_context& context, const StreamOptions& options, Rank peer,
       std::uint16_t stream, std::vector<Target> targets, Done done);

  void start() { attempt(); }
  void cancel();
  /// Called with the time that passed while somebody polled; gives up an address that is mute.
  void tick(Duration polled);
  /// Gives up when an address refuses, instead of trying on.
  void leave() { leaving_ = true; }
  /// Some address has accepted the connection.
  bool connected() const { return session_ != nullptr; }
  /// The peer has this rank's proof, and may have admitted it already.
  bool may_be_admitted() const { return session_ != nullptr && session_->proof_sent(); }

 private:
  struct Answers {
    std::size_t denials = 0;  // that more tries do not change
    bool let_in = false;      // once, or may have no room to
  };

  void attempt();
  void on_outcome(const boost::system::error_code& outcome);
  void on_connected();
  void on_session(const Status& status);
  void on_admission();
  void on_refused(Admission why);
  void next_target(const Status& cause);
  void next_round(const Status& cause);
  bool is_out_of_reach() const;
  Status out_of_reach() const;
  void on_shortage(const std::string& what);
  void pause_and_retry();
  void finish(Result<Connection> result);
  const Target& target() const { return targets_[target_index_]; }
  std::size_t& denials() { return answers_[target_index_].denials; }

  boost::asio::io_context& context_;
  const StreamOptions& options_;
  Rank peer_;
  std::uint16_t stream_;
  std::vector<Target> targets_;
  std::vector<Answers> answers_;  // by target
  std::string first_cause_;       // why the first was in vain last
  Done done_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<HandshakeSession> session_;
  std::size_t target_index_ = 0;
  int shortages_ = 0;          // in a row
  std::uint64_t attempt_ = 0;  // handlers of an earlier attempt are stale
  DialWatch watch_;
  TimePoint connecting_since_ = kNever;
  Duration pause_;
  Duration polled_in_attempt_{};
  Duration polled_{};
  TimePoint session_began_;
  bool leaving_ = false;
  bool warned_ = false;
};

}  // namespace unisono::tcp
