#include "backend/redis_control.hpp"

#include "backend/redis_scripts.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "wire/resp_request.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <algorithm>
#include <random>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds tick_interval{250};
constexpr milliseconds inspection_interval{2'000};
constexpr milliseconds back_off_min{50}, back_off_max{2'000};
// A reply of the server to the gate itself (COMMAND is about 250 KB).
constexpr std::size_t reply_bytes_max = 16 * 1024 * 1024;

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

// A gate that starts and finds data but no epoch cannot know whether this is its first day or the morning after a loss.
// It begins, but it says so in the epoch: gates that knew another one stay closed.
constexpr std::string_view epoch_of_empty = "empty-", epoch_beside_data = "first-";

std::string random_text() {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::random_device random;
  std::string text;
  for (int i = 0; i < 24; ++i) text += digits[random() % digits.size()];
  return text;
}

std::string words_of(const wire::reply_value* reply) {
  if (reply == nullptr) return "the connection to Redis was lost";
  if (reply->type == '-' || reply->type == '!') return std::string(reply->text);
  return "an unexpected reply";
}

bool is_error(const wire::reply_value* reply) { return reply == nullptr || reply->type == '-' || reply->type == '!'; }

}  // namespace

struct redis_control::attempt {
  std::shared_ptr<mark_cell> cell;
  fence::token wanted;
  std::int64_t max_step = 0;
  raise_callback done;
  // What the next compare-and-set expects: nothing known yet (a look), no mark, or this mark.
  enum class expects : std::uint8_t { nothing_known, no_mark, this_mark } expected = expects::nothing_known;
  fence::token expected_mark;
  fence::token target;  // what it writes: `wanted`, or what was seen before when the backend forgot it
  bool check_epoch = true;
  std::shared_ptr<mark_healing> healing;  // of which it is a part
  int tries = 0;
  clock::time_point started = clock::now();
};

redis_control::redis_control(asio::io_context& context, std::shared_ptr<redis_state> state)
    : context_(context),
      state_(std::move(state)),
      socket_(context),
      resolver_(context),
      ticker_(context),
      retry_(context) {}

void redis_control::start() {
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

void redis_control::lose(std::string why) {
  ++connection_;
  const bool was_up = up_;
  up_ = connected_ = inspecting_ = writing_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
  in_ = byte_queue{};
  out_.clear();
  ++failures_;
  if (!stopped_) {
    if (was_up || failures_ == 1)
      log::write(log::level::warn, "backend lost", {{"gate", state_->gate.name}, {"detail", why}});
    unfit("the backend is down: " + why);
  }
  auto orphans = std::exchange(pending_, {});
  for (auto& one : orphans) one.done(nullptr);
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
  not_ready(std::move(problem));
  answer_rechecks();
}

void redis_control::not_ready(std::string problem) {
  up_ = false;
  state_->change([&](redis_state::picture& p) {
    p.ready = false;
    p.problem = problem;
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

void redis_control::send(const std::vector<std::string_view>& arguments, reply_callback done) {
  if (!connected_) return done(nullptr);
  wire::append_command(out_, arguments);
  pending_.push_back({std::move(done), clock::now() + state_->gate.limits_time.connect});
  flush();
}

void redis_control::flush() {
  while (!writing_ && !out_.empty()) {
    boost::system::error_code failed;
    const std::size_t n = socket_.write_some(asio::buffer(out_), failed);
    out_.erase(0, n);
    if (failed == asio::error::would_block) {
      writing_ = true;
      auto on_writable = [self = shared_from_this(), mine = connection_](const boost::system::error_code&) {
        if (mine != self->connection_) return;
        self->writing_ = false;
        self->flush();
      };
      socket_.async_wait(stream::socket::wait_write, on_writable);
    } else if (failed) {
      return;  // the reader sees the same and cleans up
    }
  }
}

void redis_control::wait_readable() {
  auto on_readable = [self = shared_from_this(), mine = connection_](const boost::system::error_code& failed) {
    if (mine != self->connection_) return;
    if (failed) return self->lose(failed.message());
    self->read_some();
  };
  socket_.async_wait(stream::socket::wait_read, on_readable);
}

void redis_control::read_some() {
  const std::uint64_t mine = connection_;
  boost::system::error_code failed;
  char* room = in_.prepare(64 * 1024);
  const std::size_t n = socket_.read_some(asio::buffer(room, in_.writable()), failed);
  if (failed && failed != asio::error::would_block) return lose(failed.message());
  in_.commit(n);
  while (!in_.empty()) {
    auto parsed = wire::parse_value(in_.view());
    if (parsed.has_error() || pending_.empty() || in_.size() > reply_bytes_max) {
      state_->figures.protocol_errors(metrics::side::backend).add();
      return lose("Redis sent what is not an answer");
    }
    if (!*parsed) break;
    const auto& [value, bytes] = **parsed;
    const reply_callback done = std::move(pending_.front().done);
    pending_.pop_front();
    done(&value);
    if (mine != connection_) return;
    in_.consume(bytes);
  }
  in_.release();
  wait_readable();
}

// ── the server's fitness ────────────────────────────────────────────────────────────────────────────────────────────

void redis_control::greet() {
  const auto& own = state_->gate.control;
  // Before the gate signs in itself, it meets the server as a client does.
  send({"PING"}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    const bool wants = is_error(reply) && reply->text.starts_with("NOAUTH");
    if (self->state_->look().wants_auth != wants)
      self->state_->change([&](redis_state::picture& p) { p.wants_auth = wants; });
  });
  if (!own.password.empty()) {
    std::vector<std::string_view> auth{"AUTH"};
    if (!own.user.empty()) auth.emplace_back(own.user);
    auth.emplace_back(own.password);
    send(auth, [self = shared_from_this()](const wire::reply_value* reply) {
      if (reply != nullptr && is_error(reply)) self->unfit("Redis refused the gate's own user: " + words_of(reply));
    });
  }
  send({"COMMAND"}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return self->unfit("COMMAND failed: " + words_of(reply));
    auto table = command_table::build(*reply, self->state_->gate.allow_commands);
    if (table.has_error()) return self->unfit(table.error().message);
    self->state_->change([&](redis_state::picture& p) { p.commands = *table; });
  });
  inspect();
}

void redis_control::inspect() {
  inspecting_ = true;
  next_inspection_ = clock::now() + inspection_interval;
  send({"INFO"}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    self->inspecting_ = false;
    std::string problem;
    if (is_error(reply))
      problem = "INFO failed: " + words_of(reply);
    else if (info_field(reply->text, "role") != "master")
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
        log::write(log::level::error, "backend unfit", {{"gate", self->state_->gate.name}, {"detail", problem}});
      ++self->failures_;
      return self->unfit(problem);
    }
    self->server_empty_ = reply->text.find("\r\ndb") == std::string_view::npos;
    self->check_epoch();
  });
}

// The epoch is gone or new: the marks were lost with it. Everything that this process remembers is put back before a
// write is admitted again, and only then is the new epoch taken over. Where data survived the marks (SWAPDB, FLUSHDB of
// database 0, a partial restore), what this process never saw is lost all the same: that stays closed until an operator
// has looked and writes an epoch.
void redis_control::check_epoch() {
  send({"GET", epoch_key}, [self = shared_from_this(), asked = state_->look().epoch](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return self->unfit("the epoch could not be read: " + words_of(reply));
    const std::string found = reply->null ? std::string() : std::string(reply->text);
    const std::string known = self->state_->look().epoch;
    // Another thread has created or renewed the epoch meanwhile; this answer may be from before that.
    if (known != asked) return self->check_epoch();
    if (!found.empty() && (known.empty() || known == found)) return self->healthy(found);
    if (known.empty()) return self->settle_epoch();
    if (found.empty() ? !self->server_empty_ : found.starts_with(epoch_beside_data))
      return self->unfit(
          "the backend lost its marks but kept other data; make sure that no older lock holder is still at work, then "
          "SET "
          "fencegate:epoch to any new text");
    self->not_ready("the backend lost its marks; they are being put back");
    log::write(log::level::error, "marks lost", {{"gate", self->state_->gate.name}, {"detail", "the epoch changed"}});
    self->state_->figures.regressions_total.add();
    self->heal_all(found);
  });
}

void redis_control::heal_all(std::string found) {
  inspecting_ = true;
  auto remembered = state_->marks.all();
  std::erase_if(remembered, [](const auto& cell) { return !cell->seen(); });
  heal_more(std::make_shared<mark_healing>(std::move(remembered)), found);
}

void redis_control::heal_more(const std::shared_ptr<mark_healing>& healing, const std::string& found) {
  while (auto cell = healing->begin_next()) {
    auto a = std::make_shared<attempt>();
    a->cell = std::move(cell);
    a->wanted = a->target = *a->cell->seen();
    a->check_epoch = false;
    a->healing = healing;
    a->done = [self = shared_from_this(), healing, found, mine = connection_](const raise_outcome& outcome) {
      healing->one_done(outcome.what != raise_outcome::kind::unavailable);
      // A lost connection begins anew with everything.
      if (mine == self->connection_) self->heal_more(healing, found);
    };
    try_raise(a);
  }
  if (healing->over()) healed(*healing, found);
}

void redis_control::healed(const mark_healing& healing, const std::string& found) {
  inspecting_ = false;
  if (healing.lost() > limits::lost_marks_logged_max)
    log::write(log::level::error, "marks went back",
               {{"gate", state_->gate.name}, {"marks", static_cast<std::int64_t>(healing.lost())}});
  if (healing.failed()) return unfit("marks that the backend lost could not be put back");
  if (found.empty()) return settle_epoch();
  healthy(found);
}

void redis_control::settle_epoch() {
  const std::string fresh = std::string(server_empty_ ? epoch_of_empty : epoch_beside_data) + random_text();
  send({"SET", epoch_key, fresh, "NX"}, [](const wire::reply_value*) {});
  send({"GET", epoch_key}, [self = shared_from_this()](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply) || reply->null || reply->text.empty())
      return self->unfit("the epoch could not be written: " + words_of(reply));
    self->healthy(std::string(reply->text));
  });
}

void redis_control::healthy(std::string epoch) {
  if (!up_) log::write(log::level::info, "backend up", {{"gate", state_->gate.name}});
  up_ = true;
  failures_ = 0;
  const auto now = state_->look();
  if (!now.ready || now.epoch != epoch)
    state_->change([&](redis_state::picture& p) {
      p.ready = true;
      p.problem.clear();
      p.epoch = epoch;
    });
  answer_rechecks();
}

void redis_control::recheck(std::function<void()> done) {
  if (!connected_) return done();
  rechecks_.push_back(std::move(done));
  if (!inspecting_) inspect();
}

// ── marks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_control::raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step,
                          raise_callback done) {
  const auto seen = cell->seen();
  if (seen && *seen > wanted) return done({raise_outcome::kind::stale, false, seen, {}});
  const auto backend = state_->look();
  if (!backend.ready) return done({raise_outcome::kind::unavailable, false, {}, backend.problem});
  auto a = std::make_shared<attempt>();
  a->cell = std::move(cell);
  a->wanted = a->target = wanted;
  a->max_step = max_step;
  a->done = std::move(done);
  // With what was seen as the guess, one round trip usually does. A step is judged only against what the backend says.
  if (seen && max_step == 0) {
    a->expected = attempt::expects::this_mark;
    a->expected_mark = *seen;
  }
  try_raise(a);
}

void redis_control::try_raise(const std::shared_ptr<attempt>& a) {
  if (++a->tries > limits::raise_attempts_max)
    return a->done({raise_outcome::kind::unavailable, false, {}, "others raise it all the time"});
  const bool look = a->expected == attempt::expects::nothing_known;
  const std::string expected = a->expected == attempt::expects::this_mark ? a->expected_mark.to_string() : "";
  const std::string target = look ? "" : a->target.to_string();
  const std::string epoch = a->check_epoch ? state_->look().epoch : std::string();
  send({"EVAL", compare_and_set_mark, "2", a->cell->key, epoch_key, expected, target, epoch},
       [self = shared_from_this(), a](const wire::reply_value* reply) { self->on_raise_reply(a, reply); });
}

void redis_control::on_raise_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply) {
  const auto give_up = [&](std::string why) { a->done({raise_outcome::kind::unavailable, false, {}, std::move(why)}); };
  if (is_error(reply)) return give_up(words_of(reply));
  if (reply->type != '*' || reply->elements.empty()) return give_up("an unexpected reply");
  const std::string_view word = reply->elements[0].text;
  if (word == "set") {
    state_->figures.check_duration_seconds.observe(clock::now() - a->started);
    a->cell->saw(a->target);
    const bool raised = a->expected != attempt::expects::this_mark || a->expected_mark != a->target;
    if (raised) state_->figures.raises_total.add();
    if (a->target > a->wanted) return a->done({raise_outcome::kind::stale, false, a->target, {}});
    return a->done({raise_outcome::kind::held, raised, a->target, {}});
  }
  if (word == "epoch") {
    recheck([] {});
    return give_up("the backend lost its marks; they are being put back");
  }
  if (word == "none") return judge(a, std::nullopt);
  if (word == "is" && reply->elements.size() == 2) return judge(a, reply->elements[1].text);
  give_up("an unexpected reply");
}

// What the backend has is not what was expected: decide with exact integers, then try again with what it has.
void redis_control::judge(const std::shared_ptr<attempt>& a, std::optional<std::string_view> found) {
  const auto seen = a->cell->seen();
  a->target = seen ? std::max(a->wanted, *seen) : a->wanted;
  if (!found) {
    if (seen) note_regression(*a, "none");
    a->expected = attempt::expects::no_mark;
    // No mark yet: there is nothing to measure a step against.
    return try_raise(a);
  }
  const auto mark = fence::token::parse(*found);
  if (mark.has_error())
    return a->done({raise_outcome::kind::unavailable, false, {}, "the mark in Redis is not a canonical integer"});
  if (seen && *mark < *seen) note_regression(*a, *found);
  const fence::token base = seen ? std::max(*mark, *seen) : *mark;
  if (*mark >= a->target) {
    a->cell->saw(*mark);
    if (*mark > a->wanted) return a->done({raise_outcome::kind::stale, false, *mark, {}});
  }
  if (a->max_step > 0 && a->wanted > base && a->wanted.value() - base.value() > a->max_step)
    return a->done({raise_outcome::kind::jump, false, base, {}});
  a->expected = attempt::expects::this_mark;
  a->expected_mark = *mark;
  try_raise(a);
}

void redis_control::note_regression(const attempt& a, std::string_view found) {
  state_->figures.regressions_total.add();
  if (a.healing != nullptr && !a.healing->note_lost()) return;
  const mark_cell& cell = *a.cell;
  const std::string seen = cell.seen()->to_string();
  log::write(log::level::error, "mark went back",
             {{"gate", state_->gate.name}, {"resource", cell.resource}, {"mark", found}, {"seen", seen}});
}

void redis_control::read(std::shared_ptr<mark_cell> cell, std::function<void(const mark_reading&)> done) {
  send({"GET", cell->key}, [self = shared_from_this(), cell, done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply)) return done({{}, words_of(reply)});
    const auto seen = cell->seen();
    std::optional<fence::token> mark;
    if (!reply->null) {
      const auto parsed = fence::token::parse(reply->text);
      if (parsed.has_error()) return done({{}, "the mark in Redis is not a canonical integer"});
      mark = *parsed;
      cell->saw(*mark);
    }
    if (!seen || (mark && *mark >= *seen)) return done({mark, {}});
    self->raise(cell, *seen, 0, [done](const raise_outcome& outcome) {
      if (outcome.what == raise_outcome::kind::unavailable) return done({{}, outcome.detail});
      done({outcome.mark, {}});
    });
  });
}

void redis_control::keys_of(const std::vector<std::string>& arguments,
                            std::function<void(std::optional<std::vector<std::string>>)> done) {
  std::vector<std::string_view> command{"COMMAND", "GETKEYS"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  send(command, [done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply) || reply->type != '*') {
      // "The command has no key arguments" is an answer, too.
      if (reply != nullptr && reply->text.find("no key arguments") != std::string_view::npos)
        return done(std::vector<std::string>{});
      return done(std::nullopt);
    }
    std::vector<std::string> keys;
    for (const auto& one : reply->elements) keys.emplace_back(one.text);
    done(std::move(keys));
  });
}

}  // namespace fencegate::backend
