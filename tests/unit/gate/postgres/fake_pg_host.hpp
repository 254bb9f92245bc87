// The world around a PostgreSQL session machine, without sockets, clock or threads. No gtest here, so that a fuzz target can
// use it.
#pragma once

#include "gate/postgres/pg_engine.hpp"

#include <deque>
#include <map>

namespace fencegate::test {

class fake_pg_host : public gate::pg_host {
 public:
  // ── what a test sets
  std::string unreachable;                                                // not "": connecting fails, and why
  std::optional<std::vector<backend::ended_registration>> registrations;  // nullopt: cannot be asked
  std::optional<gate::claims_list> marks = gate::claims_list{};           // what look() finds; nullopt: cannot be read
  std::function<std::optional<wire::pg_error>(const gate::claims_list&)> on_raise;  // what raise() answers; {}: yes
  std::string no_room;               // not "": there is none for a connection with a tag, and why
  std::uint64_t lowering_found = 0;  // of what look() and raises find
  std::map<std::string, fence::token> memory;
  std::map<std::string, std::uint64_t> lowerings;  // of what is there
  std::chrono::steady_clock::time_point clock{std::chrono::hours(1)};
  bool hold_answers = false;     // then answer_next() lets one out after the other
  bool one_certificate = false;  // of the server and of the gate's listener
  gate::pg_engine* engine = nullptr;

  // ── what a test looks at
  std::vector<std::string> reports;         // "stale SELECT", "stale startup (monitor)"
  std::vector<std::string> reported_about;  // the same: "orders 34 null"
  std::vector<std::string> cuts;            // "orders 34 35 no"
  std::optional<std::chrono::milliseconds> timer;
  int asked = 0;                  // how often ended() was called
  std::string key;                // of the session
  std::string cancelled;          // what connect() was called with
  gate::claims_list raised;       // by raise() or raise_ahead(), last
  int raised_ahead = 0;           // how often raise_ahead() was called
  std::vector<std::string> lost;  // marks that had gone back

  [[nodiscard]] bool holds_answers() const { return !held_.empty(); }
  void answer_next() {
    const auto one = std::move(held_.front());
    held_.pop_front();
    one();
  }

  std::optional<std::string> take_room(const gate::claims_list& tag) override {
    return no_room.empty() || tag.empty() ? std::nullopt : std::optional(no_room);
  }
  void connect(const std::string& cancels) override {
    cancelled = cancels;
    if (unreachable.empty())
      engine->on_connected();
    else
      engine->on_unreachable(unreachable);
  }
  void has_key(const std::string& own) override { key = own; }
  bool shows_servers_certificate() const override { return one_certificate; }
  void ended(const std::string&, std::int32_t,
             std::function<void(std::optional<std::vector<backend::ended_registration>>)> done) override {
    ++asked;
    answer([this, done = std::move(done)] { done(registrations); });
  }
  void look(const std::string&, const gate::claims_list&,
            std::function<void(std::optional<backend::found_marks>)> done) override {
    answer([this, done = std::move(done)] { done(marks ? std::optional(found_of(*marks)) : std::nullopt); });
  }
  void raise(const std::string&, const gate::claims_list& claims,
             std::function<void(backend::pg_raise_result)> done) override {
    answer([this, claims, done = std::move(done)] {
      if (const auto failed = on_raise ? on_raise(claims) : std::nullopt) return done(*failed);
      raised = claims;
      done(backend::pg_raised{names_of(claims), 0, found_of(claims)});
    });
  }
  void raise_ahead(const std::string&, const gate::claims_list& claims,
                   std::function<void(backend::pg_raise_result)> done) override {
    ++raised_ahead;
    answer([this, claims, done = std::move(done)] {
      if (const auto failed = on_raise ? on_raise(claims) : std::nullopt) return done(*failed);
      raised = claims;
      done(backend::pg_raised{names_of(claims), 2, found_of(claims)});
    });
  }
  [[nodiscard]] std::optional<fence::token> seen(const std::string&, const std::string& resource) const override {
    const auto at = memory.find(resource);
    return at == memory.end() ? std::nullopt : std::optional(at->second);
  }
  void saw(const std::string&, const backend::found_mark& found) override {
    auto& lowering = lowerings[found.resource];
    if (found.lowering < lowering) return;
    const auto known = memory.find(found.resource);
    if (known == memory.end() || known->second < found.mark || lowering < found.lowering)
      memory.insert_or_assign(found.resource, found.mark);
    lowering = found.lowering;
  }
  void saw(const std::string& database, const std::string& resource, fence::token mark) {
    saw(database, {resource, mark, lowering_found});
  }
  void went_back(const std::string&, const backend::found_mark& to) override { lost.push_back(to.resource); }
  void set_timer(std::chrono::milliseconds delay) override { timer = delay; }
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return clock; }
  void report(const fence::rejection& why, std::string_view command, bool monitor) override {
    reports.push_back(std::string(fence::terms_of(why.why).name) + " " + std::string(command) +
                      (monitor ? " (monitor)" : ""));
    const auto number = [](const std::optional<fence::token>& t) { return t ? t->to_string() : "null"; };
    reported_about.push_back((why.resource.empty() ? "null" : why.resource) + " " + number(why.presented) + " " +
                             number(why.mark));
  }
  void report_cut(const fence::rejection& why, gate::applied certain) override {
    cuts.push_back(why.resource + " " + (why.presented ? why.presented->to_string() : "?") + " " +
                   (why.mark ? why.mark->to_string() : "?") + (certain == gate::applied::no ? " no" : " unknown"));
  }

 private:
  [[nodiscard]] backend::found_marks found_of(const gate::claims_list& claims) const {
    backend::found_marks out;
    for (const auto& c : claims) out.push_back({c.resource, c.presented, lowering_found});
    return out;
  }
  static std::vector<std::string> names_of(const gate::claims_list& claims) {
    std::vector<std::string> out;
    for (const auto& c : claims) out.push_back(c.resource);
    return out;
  }
  void answer(std::function<void()> now) {
    if (hold_answers)
      held_.push_back(std::move(now));
    else
      now();
  }

  std::deque<std::function<void()>> held_;
};

}  // namespace fencegate::test
