// Listens, dials and authenticates, in the background of Transport::poll(); hands out connections
// that both sides have admitted. Asio stays behind this header. Owned by StreamTransport, used by
// its thread; starts no thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/peer_address.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::tcp {

/// What happens while Connector::poll() runs. The owner implements it.
class ConnectorEvents {
 public:
  virtual ~ConnectorEvents() = default;
  /// An authenticated rank has dialled: take its connection? If admitted, connected() follows at
  /// once or never.
  virtual Admission admit(Rank peer, std::uint16_t stream) = 0;
  virtual void connected(Connection connection) = 0;
  /// Dialling has been given up for good. The cause names this rank where it cannot dial at all.
  virtual void dial_failed(Rank peer, std::uint16_t stream, const Status& cause) = 0;
  /// Somebody waits to be let in, for which this rank lacks what it takes.
  virtual void accept_failed(const Status& cause) = 0;
};

class Connector {
 public:
  /// Listens. `options` outlives the connector.
  static Result<std::unique_ptr<Connector>> open(const StreamOptions& options,
                                                 ConnectorEvents& events);
  ~Connector();

  /// What peers dial.
  const std::string& address() const;

  /// Dials until connected(), dial_failed() or cancel(): a peer that computes answers late.
  void dial(Rank peer, std::uint16_t stream, std::vector<Target> targets);
  void cancel(Rank peer, std::uint16_t stream);
  /// This rank's dial for that stream has reached a listening socket.
  bool dial_connected(Rank peer, std::uint16_t stream) const;
  /// The peer may have admitted that dial already.
  bool may_be_admitted(Rank peer, std::uint16_t stream) const;
  /// From now on nobody is accepted, and a peer whose address refuses counts as gone.
  void leave();

  /// Runs what is ready, without waiting. True if anything was. Where it throws std::bad_alloc some
  /// dial may have lost its turn, and drop_unfinished() has to follow.
  bool poll();
  /// Gives up every dial, and everybody who is being authenticated: these may dial again.
  void drop_unfinished();
  /// Somebody is being dialled or authenticated: poll() should be called often.
  bool busy() const;

 private:
  class Impl;
  explicit Connector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::tcp
