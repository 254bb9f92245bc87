// A gate that holds a lease: what its server does for it (gate/relay/lease_door.hpp decides).
#include "base/log.hpp"
#include "gate/relay/refused_session.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/server_shard.hpp"

#include <boost/asio/post.hpp>
#include <sys/stat.h>

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds waiting_interval{50};

bool is_closed_by_peer(int socket) {
  pollfd one{socket, POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0;  // POLLHUP and POLLERR are told in any case
}

}  // namespace

server::door::owner server::calls_of_door() {
  door::owner calls;
  calls.admit = [this](arrival one, bound_tag tag) { serve(std::move(one), std::move(tag)); };
  calls.refuse = [this](arrival one, const std::string& why) { refuse(std::move(one), why); };
  calls.let_pass = [this](arrival one, const std::string& why) { let_pass(std::move(one), why); };
  calls.drop = [this](arrival) { stats_.connections.add(-1); };
  calls.clock = lease::clock_reading::now;
  calls.is_gone = [](arrival& one) { return is_closed_by_peer(one.socket.native_handle()); };
  return calls;
}

void server::refuse(arrival one, const std::string& why) {
  stats_.rejected(metrics::connection_rejection::lease).add();
  open(std::move(one), [this, why](shard&, client_link client, const session_ended& ended) -> std::shared_ptr<session> {
    auto words = [this, why](std::string& from_client, std::string& to_client) {
      return protocol_->refuse(from_client, to_client, why);
    };
    return std::make_shared<refused_session>(std::move(client), words, ended);
  });
}

void server::let_pass(arrival one, const std::string& why) {
  stats_.checks(metrics::check_outcome::unavailable).add();
  rejections_.report(place_.name, {fence::reason::unavailable, {}, {}, {}, why}, one.from, "connect",
                     steady_clock::now(), true);
  serve(std::move(one), tag_);
}

void server::open_to(std::shared_ptr<const lease::bond> held) {
  asio::post(workers_.context(0), [this, held = std::move(held)]() mutable { door_->open_to(std::move(held)); });
}

void server::shut(lease::writer_phase phase, const std::string& why) {
  asio::post(workers_.context(0), [this, phase, why] {
    if (door_->shut(phase, why)) cut();
  });
}

// Behind all that were bound before: their sessions were begun by posts to the same threads.
void server::cut() {
  for (auto& s : shards_) {
    asio::post(s->context, [raw = s.get()] {
      const auto all = raw->sessions;
      for (const auto& one : all) one->cut();
    });
  }
}

void server::listen_anew(std::function<void(const result<void>&)> done) {
  asio::post(workers_.context(0), [this, done = std::move(done)] {
    if (!accepting_) return done(error{"gate " + place_.name + " accepts no more connections"});
    ++listener_number_;
    door_->drop_waiting();
    // What an operator has given to the file of a unix socket goes over to the new one.
    struct ::stat file {};
    const bool is_file = place_.listen.is_unix() && ::stat(place_.listen.path.c_str(), &file) == 0;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    listener_.reset();
    const auto listening = listen(is_file ? std::optional<::mode_t>(file.st_mode & 07777U) : std::nullopt);
    if (listening && is_file && ::lchown(place_.listen.path.c_str(), file.st_uid, file.st_gid) != 0)
      log::write(log::level::warn, "the new socket has another owner",
                 {{"gate", place_.name}, {"path", place_.listen.path}});
    if (listening && settled_) accept();
    done(listening);
  });
}

void server::look_after_waiting() {
  if (looks_after_waiting_ || door_->waiting() == 0) return;
  looks_after_waiting_ = true;
  waiting_timer_.expires_after(waiting_interval);
  waiting_timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    looks_after_waiting_ = false;
    door_->tick(steady_clock::now());
    look_after_waiting();
  });
}

}  // namespace fencegate::gate
