// See listener.h.
#include "transports/tcp/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <utility>
#include <vector>

#include "base/errno_text.h"
#include "base/network.h"

namespace unisono::tcp {
namespace {

using boost::system::error_code;

Status refused(const StreamOptions& options, const std::string& where, int error) {
  if (options.family == StreamOptions::Family::kUnix) {
    return {ErrorCode::kSystem,
            fmt::format("rank {} cannot listen on {}: {}", options.rank, where, errno_text(error))};
  }
  return {ErrorCode::kSystem,
          fmt::format("rank {} cannot listen on {}: {} (UNISONO_INTERFACE chooses the address)",
                      options.rank, where, errno_text(error))};
}

ListenOptions listen_options(const StreamOptions& options) {
  return {.send_buffer_bytes = options.send_buffer_bytes,
          .receive_buffer_bytes = options.receive_buffer_bytes};
}

Result<Listener> listener_of(boost::asio::io_context& context, ListeningSocket socket, int family,
                             std::string address) {
  Acceptor acceptor(context);
  error_code error;
  acceptor.assign(Protocol(family, 0), socket.fd.get(), error);
  if (error) return Status(ErrorCode::kSystem, "a listening socket: " + error.message());
  static_cast<void>(socket.fd.release());
  return Listener{std::move(acceptor), std::move(address)};
}

Result<Listener> listen_unix(boost::asio::io_context& context, const StreamOptions& options) {
  const std::string name = random_socket_name();
  UNISONO_ASSIGN(const Target target, unix_target(name));
  ListeningSocket socket;
  const int error = listen_at(reinterpret_cast<const sockaddr*>(&target.address), target.bytes,
                              listen_options(options), &socket);
  if (error != 0) return refused(options, to_text(target), error);
  return listener_of(context, std::move(socket), AF_UNIX, unix_address_text(name));
}

// The numeric addresses of a host name, or of the address itself.
Result<std::vector<std::string>> resolve(boost::asio::io_context& context,
                                         const StreamOptions& options) {
  boost::asio::ip::tcp::resolver resolver(context);
  error_code error;
  const auto found = resolver.resolve(options.bind_address, "", error);
  std::vector<std::string> out;
  for (const auto& entry : found) out.push_back(entry.endpoint().address().to_string());
  if (error || out.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("rank {}: '{}' is no address of this host: {} (UNISONO_INTERFACE)",
                              options.rank, options.bind_address, error.message()));
  }
  return out;
}

Result<Listener> listen_anywhere(boost::asio::io_context& context, const StreamOptions& options) {
  ListeningSocket socket;
  const int error = listen_everywhere(0, listen_options(options), &socket);
  if (error != 0) return refused(options, "every interface", error);
  std::string address = tcp_address_text(socket.port, local_addresses(socket.is_ipv6));
  const int family = socket.is_ipv6 ? AF_INET6 : AF_INET;
  return listener_of(context, std::move(socket), family, std::move(address));
}

}  // namespace

Result<Listener> listen(boost::asio::io_context& context, const StreamOptions& options) {
  if (options.family == StreamOptions::Family::kUnix) return listen_unix(context, options);
  if (options.bind_address.empty()) return listen_anywhere(context, options);
  UNISONO_ASSIGN(const std::vector<std::string> addresses, resolve(context, options));
  UNISONO_ASSIGN(const Target target, tcp_target(addresses.front(), 0));
  ListeningSocket socket;
  const int error = listen_at(reinterpret_cast<const sockaddr*>(&target.address), target.bytes,
                              listen_options(options), &socket);
  if (error != 0) return refused(options, to_text(target), error);
  std::string address = tcp_address_text(socket.port, {addresses.front()});
  return listener_of(context, std::move(socket), target.address.ss_family, std::move(address));
}

}  // namespace unisono::tcp
