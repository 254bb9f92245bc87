#include "backend/redis_control.hpp"

#include "backend/command_roles.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "wire/resp_request.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <algorithm>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds tick_interval{250};
constexpr milliseconds inspection_interval{2'000};
constexpr milliseconds back_off_min{50}, back_off_max{2'000};

std::string info_field(std::string_view info, std::string_view name) {
  std::size_t at = 0;
  while (at < info.size()) {
    std::size_t end = info.find("\r\n", at);
    if (end == std::string_view::npos) end = info.size();
    const std::string_view line = info.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
      return std::string(line.substr(name.size() + 1));
    at = end + 2;
  }
  return {};
}

// Whether an element of COMMAND INFO's reply is about the command that was born with this name.
bool is_named(const wire::reply_value& entry, std::string_view name) {
  return !entry.elements.empty() && wire::iequals(entry.elements[0].text, name);
}

}  // namespace

redis_control::redis_control(asio::io_context& context, std::shared_ptr<redis_state> state)
    : context_(context),
      state_(std::move(state)),
      socket_(context),
      resolver_(context),
      ticker_(context),
      retry_(context),
      compared_(state_->marks) {}

void redis_control::start(std::shared_ptr<void> unsettled) {
  rechecks_.emplace_back([unsettled = std::move(unsettled)] {});
  connect();
  tick();
}

void redis_control::stop() {
  stopped_ = true;
  ticker_.cancel();
  retry_.cancel();
  resolver_.cancel();
  lose("the gate is stopping");
}

// ── connection ──────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_control::connect() {
  if (stopped_) return;
  const std::uint64_t mine = ++connection_;
  connect_deadline_ = clock::now() + state_->gate.limits_time.connect;
  const auto& upstream = state_->gate.upstream;
  if (upstream.is_unix()) {
    connect_to({stream::endpoint(asio::local::stream_protocol::endpoint(upstream.path))});
    return;
  }
  auto on_resolved = [self = shared_from_this(), mine](const boost::system::error_code& failed,
                                                       const asio::ip::tcp::resolver::results_type& found) {
    if (self->stopped_ || mine != self->connection_) return;
    if (failed) return self->lose("cannot resolve " + self->state_->gate.upstream.host + ": " + failed.message());
    std::vector<stream::endpoint> endpoints;
    for (const auto& one : found) endpoints.emplace_back(one.endpoint());
    self->connect_to(std::move(endpoints));
  };
  resolver_.async_resolve(upstream.host, std::to_string(upstream.port), asio::ip::tcp::resolver::numeric_service,
                          on_resolved);
}

void redis_control::connect_to(std::vector<stream::endpoint> endpoints) {
  auto on_connected = [self = shared_from_this(), mine = connection_, endpoints](
                          const boost::system::error_code& failed, const stream::endpoint& answered) mutable {
    if (self->stopped_ || mine != self->connection_) return;
    if (failed) return self->lose("cannot connect: " + failed.message());
    self->connected_ = true;
    // The address that answered goes first: sessions try them in this order.
    std::rotate(endpoints.begin(), std::find(endpoints.begin(), endpoints.end(), answered), endpoints.end());
    self->state_->change([&](redis_state::picture& p) { p.endpoints = endpoints; });
    boost::system::error_code tcp_only;
    self->socket_.set_option(asio::ip::tcp::no_delay(true), tcp_only);
    self->socket_.non_blocking(true, tcp_only);
    self->wait_readable();
    self->greet();
  };
  asio::async_connect(socket_, endpoints, std::move(on_connected));
}

void redis_control::lose(const std::string& why) {
  ++connection_;
  const bool was_up = up_;
  if (at_work_) {  // what it was about to put back, another thread may take for done
    doubted_ = true;
    state_->marks.all_came_late();
  }
  up_ = connected_ = inspecting_ = writing_ = at_work_ = false;
  put_back_.clear();
  quiet_ = {};
  problem_ = "the backend is down: " + why;
  boost::system::error_code ignored;
  socket_.close(ignored);
  in_ = byte_queue{};
  scanned_ = 0;
  dropped_ = false;
  std::string().swap(out_);
  out_sent_ = 0;
  ++failures_;
  if (!stopped_) {
    if (was_up || failures_ == 1) state_->event().add("detail", why).write(log::level::warn, "backend lost");
    unfit(problem_);
  }
  auto orphans = std::exchange(pending_, {});
  for (auto& one : orphans)
    if (one.done) one.done(nullptr);
  answer_rechecks();
  if (stopped_) return;
  const auto wait = std::min(back_off_max, back_off_min * (1 << std::min(failures_ - 1, 6)));
  retry_.expires_after(wait);
  auto again = [self = shared_from_this()](const boost::system::error_code& failed) {
    if (!failed) self->connect();
  };
  retry_.async_wait(again);
}

// Writes are rejected from here on, and whoever waited for a look at the server learns it.
void redis_control::unfit(std::string problem) {
  inspecting_ = false;
  not_ready(std::move(problem));
  answer_rechecks();
}

void redis_control::not_ready(std::string problem) {
  up_ = false;
  problem_ = std::move(problem);
  state_->change([this](redis_state::picture& p) {
    p.ready = false;
    p.problem = problem_;
  });
}

void redis_control::answer_rechecks() {
  auto waiting = std::exchange(rechecks_, {});
  for (auto& one : waiting) one();
}

void redis_control::tick() {
  ticker_.expires_after(tick_interval);
  auto on_tick = [self = shared_from_this()](const boost::system::error_code& failed) {
    if (failed || self->stopped_) return;
    const auto now = clock::now();
    if (self->at_work_) self->announce_healing([](const wire::reply_value*) {});
    self->give_up_waiting(now);
    if (!self->pending_.empty() && self->pending_.front().deadline < now)
      self->lose("no answer within " + std::to_string(self->state_->gate.limits_time.connect.count()) + " ms");
    else if (!self->connected_ && self->connect_deadline_ < now && self->connect_deadline_ != clock::time_point{}) {
      self->connect_deadline_ = {};
      self->lose("connecting took too long");
    } else if (self->connected_ && !self->inspecting_ && (!self->up_ || self->next_inspection_ < now))
      self->inspect();
    self->tick();
  };
  ticker_.async_wait(on_tick);
}

// ── the server's fitness ────────────────────────────────────────────────────────────────────────────────────────────

// Once for each connection. Where something of it fails, the next connection tries again.
void redis_control::greet() {
  const auto& own = state_->gate.control;
  // Before the gate signs in itself, it meets the server as a client does.
  send({"PING"}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    const bool wants = is_error(reply) && reply->text.starts_with("NOAUTH");
    if (self->state_->look().wants_auth != wants)
      self->state_->change([&](redis_state::picture& p) { p.wants_auth = wants; });
    // Of what follows it would only say that strangers may not ask so much.
    if (wants && self->state_->gate.control.password.empty())
      self->lose("Redis wants a password (NOAUTH), and the gate was given none");
  });
  if (!own.password.empty()) {
    std::vector<std::string_view> auth{"AUTH"};
    if (!own.user.empty()) auth.emplace_back(own.user);
    auth.emplace_back(own.password);
    send(auth, [self = shared_from_this()](const wire::reply_value* reply) {
      if (reply != nullptr && is_error(reply)) self->lose("Redis refused the gate's own user: " + words_of(reply));
    });
  }
  auto critical = critical_commands();
  critical.emplace_back("mset");
  auto not_found = std::make_shared<std::vector<std::string_view>>();
  std::vector<std::string_view> by_name{"COMMAND", "INFO"};
  by_name.insert(by_name.end(), critical.begin(), critical.end());
  send(by_name, [self = shared_from_this(), critical, not_found](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply) || reply->elements.size() != critical.size())
      return self->lose("COMMAND INFO failed: " + words_of(reply));
    for (std::size_t i = 0; i < critical.size(); ++i)
      if (!is_named(reply->elements[i], critical[i])) not_found->push_back(critical[i]);
  });
  send({"COMMAND"}, [self = shared_from_this(), not_found](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return self->lose("COMMAND failed: " + words_of(reply));
    auto table = command_table::build(*reply, self->state_->gate.allow_commands, *not_found);
    if (table.has_error()) return self->lose(table.error().message);
    self->state_->change([&](redis_state::picture& p) { p.commands = *table; });
  });
  inspect();
}

void redis_control::inspect() {
  inspecting_ = true;
  next_inspection_ = clock::now() + inspection_interval;
  send({"INFO"}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (self->only_busy(reply)) return;
    std::string problem;
    const bool demoted = !is_error(reply) && info_field(reply->text, "role") != "master";
    if (is_error(reply))
      problem = "INFO failed: " + words_of(reply);
    else if (demoted)
      problem = "the upstream is a replica; point the gate at the primary";
    else if (info_field(reply->text, "maxmemory_policy").starts_with("allkeys-"))
      problem = "maxmemory-policy " + info_field(reply->text, "maxmemory_policy") +
                " can evict marks; set noeviction or a volatile-* policy";
    else if (info_field(reply->text, "cluster_enabled") == "1")
      problem = "Redis Cluster is not supported: marks and data of one batch must be in one slot";
    if (problem.empty() && self->state_->look().commands == command_table::empty())
      problem = "the server's COMMAND table could not be read";
    if (!problem.empty()) {
      if (self->up_ || self->failures_ <= 1)
        self->state_->event().add("detail", problem).write(log::level::error, "backend unfit");
      ++self->failures_;
      self->not_ready(problem);
      // A connection outlives what its address leads to: another one may find the primary.
      return demoted ? self->lose(problem) : self->unfit(problem);
    }
    self->server_empty_ = reply->text.find("\r\ndb") == std::string_view::npos;
    self->inspected_ = info_field(reply->text, "run_id") + ":" + info_field(reply->text, "master_replid");
    self->check_epoch();
  });
}

// A script runs, and nothing else: what was seen before it still holds. The clients' links hear of it themselves. The look
// is made up for at once: others may count on it.
bool redis_control::only_busy(const wire::reply_value* reply) {
  if (!up_ || !is_error(reply) || !reply->text.starts_with("BUSY ")) return false;
  inspecting_ = false;
  next_inspection_ = {};
  answer_rechecks();
  return true;
}

void redis_control::healthy(std::string epoch) {
  if (!up_) state_->event().write(log::level::info, "backend up");
  inspecting_ = false;
  up_ = true;
  problem_.clear();
  not_put_back_.clear();
  proven_ = inspected_;
  failures_ = 0;
  const auto now = state_->look();
  if (!now.ready || now.epoch != epoch)
    state_->change([&](redis_state::picture& p) {
      p.ready = true;
      p.problem.clear();
      p.epoch = epoch;
    });
  answer_rechecks();
  heal_late();
}

void redis_control::recheck(std::function<void()> done) {
  if (!connected_) return done();
  rechecks_.push_back(std::move(done));
  if (!inspecting_) inspect();
}

}  // namespace fencegate::backend
