// A session machine on the bench. A test writes both sides of the wire as words:
//
//   engine_rig rig;
//   rig.bind("orders=34");                                       // armed for nothing yet
//   rig.client("SET k v");
//   EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));   // what reached the backend since last asked
//   rig.backend("+OK", marks("34"), "+OK");                       // its replies
//   EXPECT_EQ(rig.answers(), "+OK|");                             // what the client got since last asked
//
// In answers and reply lines CRLF is written as '|', and is implied at the end of a reply line.
#pragma once

#include "unit/gate/redis/fake_host.hpp"
#include "unit/gate/redis/sent_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fencegate::test {

// What token 34 is told behind 35.
inline const std::string fenced = "-FENCED token 34 of orders is below mark 35; not applied|";

// "SET k v" as an array of bulk strings. A word '' is an empty argument.
inline std::string command(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    out.push_back(word == "''" ? std::string_view{} : word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::string bytes;
  wire::append_command(bytes, out);
  return bytes;
}

// "*1|+OK" as bytes.
inline std::string reply(std::string_view line) {
  std::string out;
  for (const char c : line) {
    if (c == '|')
      out += "\r\n";
    else
      out += c;
  }
  return out + "\r\n";
}

inline std::string bulk(std::string_view text) { return "$" + std::to_string(text.size()) + "|" + std::string(text); }

// An array reply of bulks; "nil" stands for a null.
template <class... Texts>
std::string bulks(const Texts&... texts) {
  std::string out = "*" + std::to_string(sizeof...(texts));
  const auto add = [&out](std::string_view text) { out += "|" + (text == "nil" ? std::string("$-1") : bulk(text)); };
  (add(texts), ...);
  return out;
}

// MGET's reply to an arm: the marks, then the epoch that the rig starts with.
template <class... Marks>
std::string marks(const Marks&... values) {
  return bulks(values..., "e1");
}

inline std::string readable(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes.substr(i, 2) == "\r\n") {
      out += '|';
      ++i;
    } else {
      out += bytes[i];
    }
  }
  return out;
}

// The arm of a connection that is bound to `orders` alone.
inline constexpr const char* watch = "WATCH fencegate:mark:{orders}";
inline constexpr const char* mget = "MGET fencegate:mark:{orders} fencegate:epoch";

class engine_rig {
 public:
  explicit engine_rig(settings::redis_gate settings = {})
      : gate(std::move(settings)), engine(host, gate, mark_memory, stats) {}

  fake_host host;
  settings::redis_gate gate;
  backend::mark_memory mark_memory;
  metrics::gate stats{"rig"};
  gate::redis_engine engine;
  bool counts_commands = true;  // else whoever takes them from the engine does

  // ── the client's side
  void client_bytes(std::string_view bytes) {
    engine.from_client.append(bytes);
    engine.on_client_bytes();
    check();
  }
  // Several commands arrive in one piece.
  template <class... Commands>
  void client(const Commands&... commands) {
    client_bytes((command(commands) + ...));
  }
  std::string answers() { return readable(std::exchange(engine.to_client, {})); }

  // ── the backend's side
  void backend_bytes(std::string_view bytes) {
    engine.from_backend.append(bytes);
    engine.on_backend_bytes();
    check();
  }
  template <class... Lines>
  void backend(const Lines&... lines) {
    backend_bytes((reply(lines) + ...));
  }
  std::string sent_bytes() {
    check();
    commands_.emptied();
    return std::exchange(engine.to_backend, {});
  }
  // What was sent since last asked, command by command. What is not the canonical form of a command shows as such.
  std::vector<std::string> sent() {
    std::vector<std::string> out;
    const std::string bytes = sent_bytes();
    std::string_view left = bytes;
    wire::request_decoder decoder;
    wire::request one;
    while (!left.empty()) {
      const auto decoded = decoder.decode(left, left.size(), one);
      if (decoded.status != wire::request_status::complete || one.inlined) {
        out.push_back("not a command: " + readable(left));
        break;
      }
      std::string line;
      for (const auto word : one.arguments)
        line += (line.empty() ? "" : " ") + (word.empty() ? "''" : std::string(word));
      out.push_back(std::move(line));
      left.remove_prefix(decoded.consumed);
    }
    return out;
  }

  // ── ways into a state
  // The client names itself with a tag, and the fake control link raises its marks.
  void bind(const std::string& tag) {
    answers();
    client("CLIENT SETNAME fence:" + tag);
    backend("+OK");
    EXPECT_EQ(answers(), "+OK|");
    sent();
  }
  // Bound to orders=34, and inside a proven MULTI; one write has been answered.
  void arm() {
    bind("orders=34");
    client("SET first 1");
    backend("+OK", marks("34"), "+OK");
    backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_EQ(answers(), "+OK|");
    sent();
  }
  // Lets a timer run out.
  void fire_timer() {
    ASSERT_TRUE(host.timer.has_value()) << "no timer is set";
    host.clock += *host.timer;
    host.timer.reset();
    engine.on_timer();
    check();
  }
  void check() {
    if (engine.closing()) return;
    engine.invariants(true);
    if (!counts_commands) return;
    commands_.look(engine.to_backend);
    commands_.compare(engine.commands_expected());
  }
  // Somebody else's raise, as this gate's own link to Redis will see it.
  void mark_is(const std::string& resource, std::int64_t value) { host.marks[resource] = fence::token(value); }

 private:
  sent_commands commands_;
};

inline settings::redis_gate with_policy(const std::function<void(fence::policy&)>& change) {
  settings::redis_gate gate;
  change(gate.policy);
  return gate;
}

}  // namespace fencegate::test
