// A small honest Redis for one link, with the marks of a fake_host: transactions, watches, databases, the wrapper
// script. A test may refuse one command, forge one reply, move a mark between any two commands, or cut the link. It
// keeps a list of what was applied, and notes each write that was applied although its token was stale. No gtest here.
#pragma once

#include "backend/redis_scripts.hpp"
#include "fake_host.hpp"
#include "gate/redis/shared_writes.hpp"
#include "sent_commands.hpp"

#include <functional>
#include <map>
#include <set>

namespace fencegate::test {

class fake_redis {
 public:
  explicit fake_redis(fake_host& host) : host_(host) {}

  // ── what a test sets
  // Called in front of each command with its number; a text is answered in place of running the command.
  std::function<std::optional<std::string>(std::size_t, const std::vector<std::string>&)> spoil;
  std::optional<std::size_t> cut_before;       // the link ends in front of this command
  std::optional<std::size_t> cut_behind;       // or behind this one, whose reply is lost
  std::size_t reply_piece = ~std::size_t{0};   // replies arrive in pieces of this many bytes
  std::map<std::string, fence::token> tokens;  // of the writer under test, by resource
  // In place of them, where there are many writers: of the writer of this command.
  std::function<std::map<std::string, fence::token>(const std::vector<std::string>&)> tokens_of;

  // ── what a test looks at
  std::vector<std::string> applied;         // writes to data, "SET k v", in order
  std::vector<std::string> violations;      // stale writes that were applied
  std::vector<std::string> replies;         // of each command
  std::map<std::string, std::string> data;  // "database/key"
  bool cut = false;

  // Serves the engine until both have nothing more to say. Timers run out as they are set.
  void serve(gate::redis_engine& engine) {
    for (int rounds = 0; rounds < 1000 && !cut; ++rounds) {
      if (engine.closing()) return;
      if (engine.to_backend.empty()) {
        if (!host_.timer) return;
        host_.clock += *host_.timer;
        host_.timer.reset();
        engine.on_timer();
        continue;
      }
      take_from(engine.to_backend, engine.commands_expected());
      answer_input([&] { return engine.closing(); },
                   [&](std::string_view bytes) {
                     engine.from_backend.append(bytes);
                     engine.on_backend_bytes();
                   });
    }
  }
  void serve(gate::shared_writes& link) {
    while (!cut && !link.broken() && !link.to_backend().empty()) {
      link.invariants(true);
      take_from(link.to_backend(), link.commands_expected());
      answer_input([&] { return link.broken(); }, [&](std::string_view bytes) { link.on_backend_bytes(bytes); });
    }
  }

 private:
  using words = std::vector<std::string>;

  static std::string bulk(const std::optional<std::string>& text) {
    return text ? "$" + std::to_string(text->size()) + "\r\n" + *text + "\r\n" : "$-1\r\n";
  }

  void take_from(std::string& out, std::uint64_t expected) {
    commands_.take(out);
    if (!expected_before_) expected_before_ = expected - commands_.count();
    commands_.compare(expected - *expected_before_);
    input_ += std::exchange(out, {});
  }

  template <class Over, class Hear>
  void answer_input(Over over, Hear hear) {
    wire::request_decoder decoder;
    wire::request one;
    std::size_t at = 0;
    while (!over()) {
      decoder.reset_progress();
      const std::string_view rest = std::string_view(input_).substr(at);
      const auto decoded = decoder.decode(rest, rest.size() + 1, one);
      if (decoded.status != wire::request_status::complete) break;
      at += decoded.consumed;
      if (cut_before == replies.size()) {
        cut = true;
        break;
      }
      const std::string answered = take(words(one.arguments.begin(), one.arguments.end()));
      replies.push_back(answered);
      if (cut_behind == replies.size() - 1) {
        cut = true;
        break;
      }
      for (std::size_t i = 0; i < answered.size(); i += std::min(reply_piece, answered.size()))
        hear(std::string_view(answered).substr(i, reply_piece));
    }
    input_.erase(0, at);
  }

  std::string take(const words& command) {
    if (spoil)
      if (const auto forged = spoil(replies.size(), command)) {
        if (in_multi_) aborted_ = true;  // as Redis does with a command that it refuses to queue
        return *forged;
      }
    const std::string& name = command[0];
    if (!well_formed(command)) {
      aborted_ = aborted_ || in_multi_;
      return "-ERR wrong arguments for '" + name + "'\r\n";
    }
    if (name == "MULTI") {
      if (in_multi_) return "-ERR MULTI calls can not be nested\r\n";
      in_multi_ = true;
      return "+OK\r\n";
    }
    if (name == "EXEC") return exec();
    if (name == "DISCARD") {
      if (!in_multi_) return "-ERR DISCARD without MULTI\r\n";
      end_multi();
      return "+OK\r\n";
    }
    if (!in_multi_) return run(command, false);
    if (name == "WATCH") {
      aborted_ = true;
      return "-ERR WATCH inside MULTI is not allowed\r\n";
    }
    queue_.push_back(command);
    return "+QUEUED\r\n";
  }

  // What the fake reads of a command is there.
  static bool well_formed(const words& command) {
    static const std::map<std::string, std::size_t> least{{"GET", 2},  {"SELECT", 2}, {"SET", 3},
                                                          {"MSET", 3}, {"BLPOP", 2},  {"EVAL", 2}};
    const auto found = least.find(command[0]);
    if (found != least.end() && command.size() < found->second) return false;
    if (command[0] == "MSET") return command.size() % 2 == 1;
    if (command[0] != "SELECT") return true;
    const std::string& number = command[1];
    return !number.empty() && number.size() < 3 && number.find_first_not_of("0123456789") == std::string::npos;
  }

  std::string exec() {
    if (!in_multi_) return "-ERR EXEC without MULTI\r\n";
    bool touched = false;
    for (const auto& [key, value] : watched_) touched = touched || value_of(key) != value;
    const auto queue = std::move(queue_);
    const bool aborted = aborted_;
    end_multi();
    if (aborted) return "-EXECABORT Transaction discarded because of previous errors.\r\n";
    if (touched) return "*-1\r\n";
    std::string out = "*" + std::to_string(queue.size()) + "\r\n";
    for (const auto& one : queue) out += run(one, true);
    return out;
  }

  void end_multi() {
    in_multi_ = aborted_ = false;
    queue_.clear();
    watched_.clear();
  }

  // Keys of marks live in the host, which plays the gate's own link to the same Redis.
  static constexpr std::string_view mark_prefix = "0/fencegate:mark:{";
  std::optional<std::string> value_of(const std::string& place) {
    if (place == "0/fencegate:epoch") return epoch;
    if (place.starts_with(mark_prefix)) {
      const auto found = host_.marks.find(place.substr(mark_prefix.size(), place.size() - mark_prefix.size() - 1));
      if (found == host_.marks.end()) return std::nullopt;
      return found->second.to_string();
    }
    const auto found = data.find(place);
    return found == data.end() ? std::nullopt : std::optional(found->second);
  }
  std::string place(const std::string& key) const { return std::to_string(database_) + "/" + key; }

  std::string run(const words& command, bool inside) {
    const std::string& name = command[0];
    if (name == "WATCH") {
      for (std::size_t i = 1; i < command.size(); ++i)
        watched_.try_emplace(place(command[i]), value_of(place(command[i])));
      return "+OK\r\n";
    }
    if (name == "UNWATCH") {
      if (!inside) watched_.clear();
      return "+OK\r\n";
    }
    if (name == "SELECT") {
      database_ = std::stoi(command[1]);
      return "+OK\r\n";
    }
    if (name == "MGET") {
      std::string out = "*" + std::to_string(command.size() - 1) + "\r\n";
      for (std::size_t i = 1; i < command.size(); ++i) out += bulk(value_of(place(command[i])));
      return out;
    }
    if (name == "GET") return bulk(value_of(place(command[1])));
    if (name == "PING") return "+PONG\r\n";
    if (name == "CLIENT") return "+OK\r\n";
    if (name == "INFO") return info_of_server("r1");
    if (name == "HELLO") return command.size() > 1 && command[1] == "3" ? "%0\r\n" : "*0\r\n";
    if (name == "EVAL") return eval(command, inside);
    if (name == "MSET") {
      for (std::size_t i = 2; i < command.size(); i += 2)
        static_cast<void>(change({"SET", command[i - 1], command[i]}));
      return "+OK\r\n";
    }
    return change(command);
  }

  // The script of backend::checked_command.
  std::string eval(const words& command, bool inside) {
    if (command[1] != backend::checked_command) return "-ERR a script of the client\r\n";
    const std::size_t n = std::stoul(command[5]);
    for (std::size_t i = 6; i < 6 + n; ++i)
      if (value_of("0/" + command[i]) != command[i + n]) return "-FENCEGATEMARK the mark moved\r\n";
    const auto said = run(words(command.begin() + 6 + 2 * static_cast<std::ptrdiff_t>(n), command.end()), inside);
    return said.starts_with('-') ? "-FENCEGATERAN " + said.substr(1) : said;
  }

  std::string change(const words& command) {
    static const std::set<std::string> known{"SET", "INCR", "DEL", "BLPOP"};
    if (!known.contains(command[0]) || command.size() < 2) return "-ERR unknown command '" + command[0] + "'\r\n";
    const std::string where = place(command[1]);
    if (where.starts_with(mark_prefix)) {
      host_.marks[where.substr(mark_prefix.size(), where.size() - mark_prefix.size() - 1)] =
          fence::token::parse(command[2]).value();
      return "+OK\r\n";
    }
    note(command);
    if (command[0] == "SET") {
      data[where] = command[2];
      return "+OK\r\n";
    }
    if (command[0] == "DEL") return ":" + std::to_string(data.erase(where)) + "\r\n";
    if (command[0] == "BLPOP") {
      const auto found = data.find(where);
      if (found == data.end()) return "*-1\r\n";
      const std::string out = "*2\r\n" + bulk(command[1]) + bulk(found->second);
      data.erase(found);
      return out;
    }
    const std::int64_t next = (data.contains(where) ? std::stoll(data[where]) : 0) + 1;
    data[where] = std::to_string(next);
    return ":" + std::to_string(next) + "\r\n";
  }

  void note(const words& command) {
    std::string line;
    for (const auto& word : command) line += (line.empty() ? "" : " ") + (word.size() > 64 ? "(large)" : word);
    applied.push_back(line);
    for (const auto& [resource, token] : tokens_of ? tokens_of(command) : tokens) {
      const auto mark = host_.marks.find(resource);
      if (mark != host_.marks.end() && mark->second > token) violations.push_back(line);
    }
  }

  fake_host& host_;
  std::string input_;
  sent_commands commands_;
  std::optional<std::uint64_t> expected_before_;  // it was told to somebody else
  bool in_multi_ = false;
  bool aborted_ = false;
  std::vector<words> queue_;
  std::map<std::string, std::optional<std::string>> watched_;
  int database_ = 0;

 public:
  std::string epoch = "e1";
};

}  // namespace fencegate::test
