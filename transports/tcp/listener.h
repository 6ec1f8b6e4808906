// Opens the listening socket of a rank. Included by connector.cc only.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <string>

#include "base/result.h"
#include "transports/tcp/handshake_session.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::tcp {

using Acceptor = boost::asio::basic_socket_acceptor<Protocol>;

struct Listener {
  Acceptor acceptor;
  std::string address;  ///< what peers dial, as parse_address() reads it
};

Result<Listener> listen(boost::asio::io_context& context, const StreamOptions& options);

}  // namespace unisono::tcp
