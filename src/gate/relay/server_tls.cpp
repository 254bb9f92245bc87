// TLS on a gate's listener: before there is a session, hands are shaken, on its thread.
#include "base/log.hpp"
#include "gate/relay/securing_session.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/server_shard.hpp"

#include <chrono>
#include <string>
#include <utility>

namespace fencegate::gate {
namespace {

// From accept to the end of the handshake, also where timeouts.head is longer, or none.
constexpr std::chrono::milliseconds handshake_most{10'000};

}  // namespace

void server::secure(shard& at, client_link client, session_maker make, const kept_use& used) {
  auto done = [this, &at, from = client.address, make = std::move(make), used](const std::shared_ptr<session>& over,
                                                                               result<client_link> secured) {
    at.sessions.erase(over);
    if (secured) return begin(at, std::move(*secured), make, used);
    stats_.connections.add(-1);
    if (!secured.error().message.empty()) note_no_tls(at, from, secured.error().message);
  };
  const auto limit = place_.head.count() == 0 ? handshake_most : std::min(place_.head, handshake_most);
  const auto one = std::make_shared<securing_session>(std::move(client), *tls_, *protocol_, limit, std::move(done));
  one->keep(used);
  at.sessions.insert(one);
  one->start();
}

void server::note_no_tls(shard& at, const std::string& client, const std::string& why) {
  stats_.rejected(metrics::connection_rejection::tls).add();
  const auto others = at.no_tls_logged.due(std::chrono::steady_clock::now());
  if (!others) return;
  log::event event;
  event.add("gate", place_.name).add("client", client).add("detail", why);
  if (*others != 0) event.add("others_before", *others);
  event.write(log::level::warn, "a client was not served through TLS");
}

}  // namespace fencegate::gate
