// The world around an engine under test, without sockets, clock or threads: marks in a map, answers at once or held
// back, timers fired by hand. No gtest here: the fuzz target uses it, too.
#pragma once

#include "../../backend/recorded_commands.hpp"
#include "gate/redis/redis_engine.hpp"

#include <map>

namespace fencegate::test {

// Redis' answer to INFO server, as bytes.
inline std::string info_of_server(std::string_view run_id, std::string_view version = "7.0.15") {
  const std::string text =
      "# Server\r\nredis_version:" + std::string(version) + "\r\nrun_id:" + std::string(run_id) + "\r\n";
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

class fake_host : public gate::engine_host {
 public:
  fake_host() {
    static const auto commands = commands_of_redis_7();
    snapshot_now.commands = commands;
    snapshot_now.epoch = "e1";
    snapshot_now.ready = true;
    snapshot_now.problem.clear();
  }

  // ── what a test sets
  backend::redis_state::snapshot snapshot_now;
  std::map<std::string, fence::token> marks;            // by resource: what the gate's own link to Redis sees
  std::string control_down;                             // not "": neither raises nor reads work, and why
  bool hold_answers = false;                            // then answer_next() lets one out after the other
  std::optional<std::vector<std::string>> server_keys;  // what COMMAND GETKEYS tells
  std::function<void()> on_recheck = [] {};
  std::string no_room;   // not "": there is none for a connection with a tag, and why
  bool unread = false;   // the client does not read, and there is no room for more
  bool full = false;     // the client is to read first
  bool watches = false;  // says when something comes under a key
  bool shares = false;   // takes writes for a shared link; the test answers by the engine's on_shared()
  std::chrono::steady_clock::time_point clock{std::chrono::hours(1)};

  // ── what a test looks at
  std::vector<std::string> seen;  // "raise orders 34", "read orders", "recheck", "keys SORT a", "timer 2"
  std::vector<std::string> reports;
  int own_writes = 0;                       // that it was told the end of
  std::string room_for;                     // the tag that asked for it last
  std::string like, like_server, like_tag;  // of the write shared last: what makes a link like its own, server and tag
  std::vector<std::string> shared;          // as the engine gave them
  std::optional<std::chrono::milliseconds> timer;

  [[nodiscard]] bool holds_answers() const { return !held_.empty(); }
  void answer_next() {
    const auto one = std::move(held_.front());
    held_.pop_front();
    one();
  }

  // ── engine_host
  std::optional<std::string> take_room(const fence::claims_list& tag) override {
    room_for = fence::write_tag(tag);
    return no_room.empty() ? std::nullopt : std::optional(no_room);
  }
  [[nodiscard]] const backend::redis_state::snapshot& snapshot() const override { return snapshot_now; }

  void raise(std::shared_ptr<backend::mark_cell> cell, fence::token wanted, std::int64_t max_step,
             backend::raise_callback done) override {
    seen.push_back("raise " + std::string(cell->resource) + " " + wanted.to_string());
    answer([this, cell, wanted, max_step, done] { done(judge_raise(*cell, wanted, max_step)); });
  }

  void read_mark(std::shared_ptr<backend::mark_cell> cell,
                 std::function<void(const backend::mark_reading&)> done) override {
    seen.push_back("read " + std::string(cell->resource));
    answer([this, cell, done] {
      if (!control_down.empty()) return done({{}, control_down});
      heal(*cell);
      const auto found = marks.find(std::string(cell->resource));
      if (found == marks.end()) return done({{}, {}});
      cell->saw(found->second);
      done({found->second, {}});
    });
  }

  void keys_of(const std::vector<std::string>& arguments,
               std::function<void(std::optional<std::vector<std::string>>)> done) override {
    std::string line = "keys";
    for (const auto& one : arguments) line += " " + one;
    seen.push_back(line);
    answer([this, done] { done(server_keys); });
  }

  void recheck(std::function<void()> done) override {
    seen.emplace_back("recheck");
    answer([this, done] {
      on_recheck();
      done();
    });
  }

  [[nodiscard]] bool sharing_pays(const gate::session_profile& /*mine*/, bool /*at_once*/) override { return shares; }
  void own_write_answered() override { ++own_writes; }
  [[nodiscard]] bool share(const gate::session_profile& mine, std::string_view command,
                           const gate::batched& /*as*/) override {
    if (!shares) return false;
    like = mine.bytes;
    like_server = mine.server;
    like_tag = fence::write_tag(mine.tag);
    shared.emplace_back(command);
    return true;
  }

  [[nodiscard]] bool turns_away() const override { return unread; }
  [[nodiscard]] bool holds_back() const override { return full; }

  [[nodiscard]] bool wait_for_keys(int database, const std::vector<std::string>& keys) override {
    std::string line = "watch " + std::to_string(database);
    for (const auto& one : keys) line += " " + one;
    if (watches) seen.push_back(line);
    return watches;
  }

  void set_timer(std::chrono::milliseconds delay) override {
    seen.push_back("timer " + std::to_string(delay.count()));
    timer = delay;
  }

  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return clock; }

  void report(const fence::rejection& why, std::string_view command, bool monitor) override {
    reports.push_back(std::string(fence::terms_of(why.why).name) + " " + std::string(command) +
                      (monitor ? " (monitor)" : ""));
  }

 private:
  void answer(std::function<void()> now) {
    if (hold_answers)
      held_.push_back(std::move(now));
    else
      now();
  }

  // As redis_control does: a mark that went back is put back before anything else.
  void heal(backend::mark_cell& cell) {
    const auto known = cell.seen();
    if (!known) return;
    auto& mark = marks[std::string(cell.resource)];
    if (mark < *known) mark = *known;
  }

  backend::raise_outcome judge_raise(backend::mark_cell& cell, fence::token wanted, std::int64_t max_step) {
    using enum backend::raise_outcome::kind;
    if (!control_down.empty()) return {unavailable, false, {}, control_down};
    heal(cell);
    const auto found = marks.find(std::string(cell.resource));
    if (found != marks.end()) {
      const auto mark = found->second;
      cell.saw(mark);
      if (mark > wanted) return {stale, false, mark, {}};
      if (mark == wanted) return {held, false, mark, {}};
      if (max_step > 0 && wanted.value() - mark.value() > max_step) return {jump, false, mark, {}};
    }
    marks[std::string(cell.resource)] = wanted;
    cell.saw(wanted);
    return {held, true, wanted, {}};
  }

  std::deque<std::function<void()>> held_;
};

}  // namespace fencegate::test
