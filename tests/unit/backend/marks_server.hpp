// One Redis as the gate's own connections see it, and the machines on those, without sockets or time: keys in a map, the
// scripts of marks, a clock that a test moves. Commands are run and answered one at a time, when the test says so.
#pragma once

#include "backend/marks_keeper.hpp"
#include "backend/redis_scripts.hpp"
#include "recorded_commands.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::test {

using words = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline std::string mark_key(const std::string& resource) { return "fencegate:mark:{" + resource + "}"; }

class marks_server {
 public:
  // ── what a test sets
  std::map<std::string, std::string> keys;  // of database 0
  std::string role = "master", policy = "noeviction", run_id = "r1", history = "h1";
  bool cluster = false;
  std::function<std::optional<std::string>(const words&)> spoil;  // a text is answered in place of running the command
  // ── what a test looks at
  std::size_t commands = 0;

  [[nodiscard]] std::string epoch() const { return value(std::string(backend::epoch_key)).value_or(""); }
  [[nodiscard]] std::string mark(const std::string& resource) const { return value(mark_key(resource)).value_or(""); }

  // As bytes.
  std::string run(const words& command) {
    ++commands;
    if (spoil)
      if (auto said = spoil(command)) return *said;
    if (command[0] == "INFO") return bulk(info());
    if (command[0] == "EVAL") return eval(command);
    std::string out = "*" + std::to_string(command.size() - 1) + "\r\n";  // MGET
    for (std::size_t i = 1; i < command.size(); ++i) out += bulk(value(command[i]));
    return out;
  }

 private:
  [[nodiscard]] std::optional<std::string> value(const std::string& key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? std::nullopt : std::optional(found->second);
  }
  static std::string bulk(const std::optional<std::string>& text) {
    return text ? "$" + std::to_string(text->size()) + "\r\n" + *text + "\r\n" : "$-1\r\n";
  }
  static std::string list(const words& texts) {
    std::string out = "*" + std::to_string(texts.size()) + "\r\n";
    for (const auto& one : texts) out += bulk(one);
    return out;
  }

  [[nodiscard]] std::string info() const {
    return "# Server\r\nrun_id:" + run_id + "\r\nmaxmemory_policy:" + policy + "\r\nrole:" + role +
           "\r\nmaster_replid:" + history + "\r\ncluster_enabled:" + (cluster ? "1" : "0") + "\r\n# Keyspace\r\n" +
           (keys.empty() ? "" : "db0:keys=" + std::to_string(keys.size()) + "\r\n");
  }

  // What the scripts of backend/redis_scripts.hpp do.
  std::string eval(const words& command) {
    const auto& text = command[1];
    const auto count = std::stoul(command[2]);
    const auto key = [&](std::size_t i) { return command[2 + i]; };
    const auto argument = [&](std::size_t i) { return command[2 + count + i]; };
    const auto is = [&](std::size_t i) { return value(key(i)).value_or(""); };
    if (text == backend::join_healing) {
      if (!is(1).empty()) return bulk({});
      keys.try_emplace(key(2), argument(1));
      keys[key(3)] = argument(2);
      return bulk(value(key(2)));
    }
    if (text == backend::write_epoch) {
      if (is(2) != argument(2) || is(3) != argument(3)) return bulk({});
      keys.try_emplace(key(1), argument(1));
      keys.erase(key(2));
      keys.erase(key(3));
      return bulk(value(key(1)));
    }
    if (text == backend::renew_epoch) {
      if (is(1) == argument(1)) keys[key(1)] = argument(2);
      return bulk(value(key(1)));
    }
    if (text == backend::end_healing) {
      if (is(1) == argument(1) && is(2) == argument(2)) {
        keys.erase(key(2));
        keys.erase(key(3));
      }
      return bulk({});
    }
    return compare_and_set(key(1), key(2), key(3), argument(1), argument(2), argument(3), argument(4) == "heal");
  }
  std::string compare_and_set(const std::string& mark, const std::string& guard, const std::string& grant,
                              const std::string& expected, const std::string& target, const std::string& epoch,
                              bool heals) {
    if (value(guard) != epoch) return list({"epoch"});
    const auto is = value(mark);
    if (!is && (!expected.empty() || target.empty())) return list({"none"});
    if (is && (is != expected || target.empty())) return list({"is", *is});
    if (is != target && !heals && keys.contains(grant)) return list({"leased", is.value_or("")});
    keys[mark] = target;
    return list({"set"});
  }
};

// What the connections of one process share.
struct keeper_process {
  settings::redis_gate settings;
  metrics::gate stats{"marks"};
  backend::redis_state state{settings, stats};
  keeper_process() {
    static const auto commands = commands_of_redis_7();
    state.change([](auto& p) { p.commands = commands; });
  }
  void saw(const std::string& resource, std::int64_t token) { state.marks.cell(resource)->saw(fence::token(token)); }
};

// One connection of a process, and its keeper. `clock`: of all of them.
class keeper_rig : public backend::control_link {
 public:
  keeper_rig(marks_server& server, keeper_process& process, time_point& clock)
      : server_(server), process_(process), clock_(clock), keeper(process.state, *this) {}

  void send(const std::vector<std::string_view>& command, backend::reply_callback done) override {
    if (!connected_) return done(nullptr);
    sent_.push_back({words(command.begin(), command.end()), std::move(done), std::nullopt});
  }
  void drop(const std::string& why) override {
    drops.push_back(why);
    lose(why);
  }
  [[nodiscard]] time_point now() const override { return clock_; }

  void connect() {
    connected_ = true;
    keeper.on_connected();
  }
  void lose(const std::string& why = "end of file") {
    connected_ = false;
    keeper.on_lost(why);
    auto orphans = std::exchange(sent_, {});
    for (auto& one : orphans) one.done(nullptr);
  }

  [[nodiscard]] bool asks_something() const { return !sent_.empty(); }
  // The first words of what is sent and not answered.
  [[nodiscard]] std::vector<std::string> asks() const {
    std::vector<std::string> out;
    for (const auto& one : sent_) out.push_back(one.command[0]);
    return out;
  }
  // Redis runs what was sent, and nothing of it is heard of yet.
  void run_all() {
    for (auto& one : sent_)
      if (!one.reply) one.reply = server_.run(one.command);
  }
  void answer_one() {
    auto one = std::move(sent_.front());
    sent_.pop_front();
    if (!one.reply) one.reply = server_.run(one.command);
    const auto parsed = wire::parse_value(*one.reply);
    one.done(&(*parsed)->first);
  }
  void answer(std::size_t most = 100'000) {
    for (; most > 0 && !sent_.empty(); --most) answer_one();
  }
  // Looks at the server; so many commands are answered.
  void look(std::size_t most = 100'000) {
    keeper.recheck([] {});
    answer(most);
  }

  [[nodiscard]] bool ready() const { return process_.state.look().ready; }
  [[nodiscard]] std::string known() const { return process_.state.look().epoch; }
  backend::raise_outcome raise(const std::string& resource, std::int64_t token, std::int64_t max_step = 0) {
    std::optional<backend::raise_outcome> out;
    begin_raise(resource, token, out, max_step);
    answer();
    return out.value();
  }
  void begin_raise(const std::string& resource, std::int64_t token, std::optional<backend::raise_outcome>& out,
                   std::int64_t max_step = 0) {
    keeper.raise(process_.state.marks.cell(resource), fence::token(token), max_step,
                 [&out](const backend::raise_outcome& outcome) { out = outcome; });
  }

  std::vector<std::string> drops;

 private:
  struct asked {
    words command;
    backend::reply_callback done;
    std::optional<std::string> reply;  // it was run
  };
  marks_server& server_;
  keeper_process& process_;
  time_point& clock_;
  bool connected_ = false;
  std::deque<asked> sent_;

 public:
  backend::marks_keeper keeper;
};

}  // namespace fencegate::test
