// A load generator for one question: how many writes of 64 bytes per second does this way of sending them reach, and how
// long does one take. One thread, epoll, closed loop: each connection sends a prebuilt round of P writes, waits for all of
// its replies, and sends the next. Replies are known beforehand, but for the digits of numbers, so that every reply of every
// write is compared, and a benchmark of errors ends with exit status 2 and the reply that came instead.
//
// It prints one line of JSON: ops, seconds, rate, p50_us, p99_us (of a whole round), cpu_seconds (its own).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

struct settings {
  std::string mode = "set";  // a key of `writes`, or evalsha | eval | multi_ahead | wait_trip
  std::string name;          // CLIENT SETNAME of every connection; "" = none
  std::uint16_t port = 0;
  int connections = 1;
  int pipeline = 1;
  int value_bytes = 64;
  double seconds = 2;
  double warmup = 0.2;
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "load: %s\n", text.c_str());
  std::exit(2);
}

// ---- requests and the replies that must come -----------------------------------------------------------------------

constexpr std::string_view mark_key = "bench:mark:{orders}";
constexpr std::string_view epoch_key = "bench:epoch";
constexpr std::string_view token = "34";
constexpr std::string_view epoch = "5f1d7c0a9be84b4c";
// What a writer would send who fences without a proxy: the shortest script that can be right while the mark is exact.
constexpr std::string_view script =
    "if redis.call('GET',KEYS[1])~=ARGV[1] then return redis.error_reply('FENCED') end "
    "return redis.call('SET',KEYS[2],ARGV[2])";
// Where a number is expected: any stands for it.
constexpr char digits = '#';
constexpr std::string_view number = ":#\r\n";
constexpr std::string_view ok = "+OK\r\n";
constexpr std::string_view queued = "+QUEUED\r\n";

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

std::string command(std::initializer_list<std::string_view> words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto word : words) out += bulk(word);
  return out;
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

struct exchange {
  std::string request;
  std::string reply;
  void add(const std::string& more_request, std::string_view more_reply) {
    request += more_request;
    reply += more_reply;
  }
};

// The part of both batch designs that proves the mark: what fencegate reads before it lets the next batch go.
void add_arming(exchange& to) {
  to.add(command({"WATCH", mark_key, epoch_key}), ok);
  to.add(command({"MGET", mark_key, epoch_key}), "*2\r\n" + bulk(token) + bulk(epoch));
}

// The words of a write, where KEY and VALUE stand for them; each kind has keys of its own.
using words = std::vector<std::string_view>;
struct write_kind {
  words said;
  std::string_view reply;
};
const write_kind set{{"SET", "KEY", "VALUE"}, ok}, incr{{"INCR", "KEY:n"}, number},
    hset{{"HSET", "KEY:h", "field", "VALUE"}, number}, lpush{{"LPUSH", "KEY:l", "VALUE"}, number},
    expire{{"EXPIRE", "KEY:h", "1000"}, number}, del{{"DEL", "KEY:l"}, number};
// One after the other, by round and place.
const std::map<std::string_view, std::vector<const write_kind*>> writes{
    {"set", {&set}},
    {"incr", {&incr}},
    {"hset", {&hset}},
    {"lpush", {&lpush}},
    {"mixed", {&set, &incr, &hset, &lpush, &expire, &set, &incr, &del}}};

std::string said(const words& text, const std::string& key, const std::string& value) {
  std::string out = "*" + std::to_string(text.size()) + "\r\n";
  for (const auto word : text) {
    if (word == "VALUE")
      out += bulk(value);
    else if (word.starts_with("KEY"))
      out += bulk(key + std::string(word.substr(3)));
    else
      out += bulk(word);
  }
  return out;
}

// One write of a mode that fences without a proxy.
std::string scripted_request(const settings& s, const std::string& sha, const std::string& key,
                             const std::string& value) {
  if (s.mode == "evalsha") return command({"EVALSHA", sha, "2", mark_key, key, token, value});
  if (s.mode == "eval") return command({"EVAL", script, "2", mark_key, key, token, value});
  return said(set.said, key, value);
}

std::string key_of(int connection, int place) {
  return "bench:" + std::to_string(connection) + ":" + std::to_string(place);
}

exchange one_round(const settings& s, const std::string& sha, int connection, int turn) {
  const std::string value(static_cast<std::size_t>(s.value_bytes), 'x');
  exchange round;
  if (const auto plain = writes.find(s.mode); plain != writes.end()) {
    const auto& kinds = plain->second;
    for (int i = 0; i < s.pipeline; ++i) {
      const auto& kind = *kinds[static_cast<std::size_t>(connection + turn + i) % kinds.size()];
      round.add(said(kind.said, key_of(connection, i), value), kind.reply);
    }
    return round;
  }
  std::string scripted;
  for (int i = 0; i < s.pipeline; ++i) scripted += scripted_request(s, sha, key_of(connection, i), value);
  if (s.mode == "multi_ahead") {
    round.add(scripted, repeated(queued, s.pipeline));
    round.add(command({"EXEC"}), "*" + std::to_string(s.pipeline) + "\r\n" + repeated(ok, s.pipeline));
    add_arming(round);
    round.add(command({"MULTI"}), ok);
  } else if (s.mode == "wait_trip") {
    round.add(command({"MULTI"}), ok);
    round.add(command({"WAIT", "99999", "0"}), queued);
    round.add(scripted, repeated(queued, s.pipeline));
    round.add(command({"EXEC"}), "*" + std::to_string(s.pipeline + 1) + "\r\n:0\r\n" + repeated(ok, s.pipeline));
    add_arming(round);
  } else {
    round.add(scripted, repeated(ok, s.pipeline));
  }
  return round;
}

// ---- sockets -------------------------------------------------------------------------------------------------------

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    fail("connect to port " + std::to_string(port) + ": " + std::strerror(errno));
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// Sends a request on a blocking socket and demands exactly this reply. An empty `reply` takes one line or bulk as it
// comes and returns its text.
std::string ask(int fd, const std::string& request, std::string_view reply) {
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    fail("send during set-up");
  }
  std::string got;
  const auto complete = [&] {
    if (!reply.empty()) return got.size() >= reply.size() || (!got.empty() && got[0] == '-' && got.ends_with("\r\n"));
    const auto line = got.find("\r\n");
    return line != std::string::npos &&
           (got[0] != '$' || got.size() >= line + 2 + std::strtoul(&got[1], nullptr, 10) + 2);
  };
  std::array<char, 4096> buffer;
  while (!complete()) {
    const auto n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) fail("connection closed during set-up");
    got.append(buffer.data(), static_cast<std::size_t>(n));
  }
  if (!reply.empty() && got != reply) fail("set-up answered " + got);
  if (reply.empty() && got[0] == '$') return got.substr(got.find("\r\n") + 2, got.size() - got.find("\r\n") - 4);
  return got;
}

// Marks and script of the modes that fence without a proxy; returns the script's SHA1.
std::string prepare_server(const settings& s) {
  if (writes.contains(s.mode)) return {};
  const int fd = connect_to(s.port);
  ask(fd, command({"SET", mark_key, token}), ok);
  ask(fd, command({"SET", epoch_key, epoch}), ok);
  auto sha = ask(fd, command({"SCRIPT", "LOAD", script}), "");
  if (sha.size() != 40) fail("SCRIPT LOAD answered " + sha);
  ::close(fd);
  return sha;
}

struct connection {
  int fd = -1;
  std::vector<exchange> rounds;  // one after the other, and again
  std::size_t turn = 0;
  std::size_t sent = 0;
  std::size_t matched = 0;  // of what is expected
  bool in_number = false;
  bool waits_for_room = false;  // EPOLLOUT is asked for
  bool stopped = false;
  clock_type::time_point started;
  [[nodiscard]] const exchange& round() const { return rounds[turn]; }
};

class generator {
 public:
  explicit generator(const settings& s) : settings_(s), poll_(::epoll_create1(EPOLL_CLOEXEC)) { open(); }

  void run();
  void print() const;

 private:
  void open();
  void begin_round(connection& c);
  void send_rest(connection& c);
  void read_some(connection& c);
  void finish_round(connection& c, clock_type::time_point now);

  settings settings_;
  int poll_;
  std::vector<connection> connections_;
  clock_type::time_point counted_from_, counted_to_;
  int running_ = 0;
  std::uint64_t ops_ = 0;
  std::vector<float> round_microseconds_;
  std::array<char, 256 * 1024> buffer_;
};

void generator::open() {
  const auto sha = prepare_server(settings_);
  connections_.resize(static_cast<std::size_t>(settings_.connections));
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    auto& c = connections_[i];
    c.fd = connect_to(settings_.port);
    if (!settings_.name.empty()) ask(c.fd, command({"CLIENT", "SETNAME", settings_.name}), ok);
    if (settings_.mode == "multi_ahead" || settings_.mode == "wait_trip") {
      exchange first;
      add_arming(first);
      if (settings_.mode == "multi_ahead") first.add(command({"MULTI"}), ok);
      ask(c.fd, first.request, first.reply);
    }
    // Lists would grow from run to run.
    for (int place = 0; settings_.mode == "lpush" && place < settings_.pipeline; ++place)
      ask(c.fd, said(del.said, key_of(static_cast<int>(i), place), {}), "");
    const auto plain = writes.find(settings_.mode);
    const int turns = plain == writes.end() ? 1 : static_cast<int>(plain->second.size());
    for (int turn = 0; turn < turns; ++turn) c.rounds.push_back(one_round(settings_, sha, static_cast<int>(i), turn));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    ::epoll_ctl(poll_, EPOLL_CTL_ADD, c.fd, &event);
  }
}

void generator::begin_round(connection& c) {
  c.sent = c.matched = 0;
  c.started = clock_type::now();
  send_rest(c);
}

void generator::send_rest(connection& c) {
  const auto& request = c.round().request;
  while (c.sent < request.size()) {
    const auto n = ::send(c.fd, request.data() + c.sent, request.size() - c.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(std::string("send: ") + std::strerror(errno));
    c.sent += static_cast<std::size_t>(n);
  }
  const bool wanted = c.sent < request.size();
  if (wanted == c.waits_for_room) return;
  c.waits_for_room = wanted;
  epoll_event event{.events = EPOLLIN | (wanted ? EPOLLOUT : 0U),
                    .data = {.u64 = static_cast<std::uint64_t>(&c - connections_.data())}};
  ::epoll_ctl(poll_, EPOLL_CTL_MOD, c.fd, &event);
}

void generator::read_some(connection& c) {
  const auto n = ::recv(c.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) fail("the server closed a connection");
  const auto bytes = static_cast<std::size_t>(n);
  const auto& reply = c.round().reply;
  for (std::size_t at = 0; at < bytes; ++at) {
    const char got = buffer_[at];
    const bool is_digit = got >= '0' && got <= '9';
    if (is_digit && (c.in_number || (c.matched < reply.size() && reply[c.matched] == digits))) {
      if (!std::exchange(c.in_number, true)) ++c.matched;
      continue;
    }
    c.in_number = false;
    if (c.matched == reply.size() || reply[c.matched] != got)
      fail("a reply is not the expected one; got: " +
           std::string(&buffer_[at], std::min<std::size_t>(bytes - at, 300)));
    ++c.matched;
  }
  if (c.matched == reply.size()) finish_round(c, clock_type::now());
}

void generator::finish_round(connection& c, clock_type::time_point now) {
  if (c.sent != c.round().request.size()) fail("replies came before the requests");
  if (now >= counted_to_) {
    c.stopped = true;
    --running_;
    return;
  }
  if (now >= counted_from_) {
    ops_ += static_cast<std::uint64_t>(settings_.pipeline);
    round_microseconds_.push_back(std::chrono::duration<float, std::micro>(now - c.started).count());
  }
  c.turn = (c.turn + 1) % c.rounds.size();
  begin_round(c);
}

void generator::run() {
  const auto ticks = [](double seconds) {
    return std::chrono::duration_cast<clock_type::duration>(std::chrono::duration<double>(seconds));
  };
  round_microseconds_.reserve(1 << 20);
  counted_from_ = clock_type::now() + ticks(settings_.warmup);
  counted_to_ = counted_from_ + ticks(settings_.seconds);
  running_ = settings_.connections;
  for (auto& c : connections_) begin_round(c);
  std::array<epoll_event, 256> events;
  while (running_ > 0) {
    const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 30'000);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("no reply for 30 s");
    for (int i = 0; i < n; ++i) {
      auto& c = connections_[events[static_cast<std::size_t>(i)].data.u64];
      const auto what = events[static_cast<std::size_t>(i)].events;
      if (what & EPOLLOUT) send_rest(c);
      if (what & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_some(c);
    }
  }
}

void generator::print() const {
  if (round_microseconds_.empty()) fail("no round was finished in the time counted");
  auto sorted = round_microseconds_;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double part) {
    return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
  };
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto cpu = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  const auto ops = static_cast<double>(ops_);
  std::printf("{\"ops\":%.0f,\"seconds\":%.3f,\"rate\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"cpu_seconds\":%.3f}\n",
              ops, settings_.seconds, ops / settings_.seconds, static_cast<double>(at(0.5)),
              static_cast<double>(at(0.99)), cpu);
}

settings parse(int argc, char** argv) {
  settings s;
  const std::map<std::string_view, int*> numbers{
      {"--connections", &s.connections}, {"--pipeline", &s.pipeline}, {"--value-bytes", &s.value_bytes}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    const char* value = argv[i + 1];
    if (const auto number = numbers.find(key); number != numbers.end())
      *number->second = std::atoi(value);
    else if (key == "--port")
      s.port = static_cast<std::uint16_t>(std::atoi(value));
    else if (key == "--mode")
      s.mode = value;
    else if (key == "--name")
      s.name = value;
    else if (key == "--seconds")
      s.seconds = std::atof(value);
    else if (key == "--warmup")
      s.warmup = std::atof(value);
    else
      fail("unknown option " + std::string(key));
  }
  constexpr std::array<std::string_view, 4> scripted{"evalsha", "eval", "multi_ahead", "wait_trip"};
  const bool known = writes.contains(s.mode) || std::find(scripted.begin(), scripted.end(), s.mode) != scripted.end();
  const bool good = argc % 2 == 1 && s.port != 0 && s.connections > 0 && s.pipeline > 0 && s.value_bytes > 0 &&
                    s.seconds > 0 && known;
  if (!good) {
    fail(
        "usage: load --port N [--mode set|incr|hset|lpush|mixed|evalsha|eval|multi_ahead|wait_trip] [--connections N] "
        "[--pipeline N] "
        "[--value-bytes N] [--seconds S] [--warmup S] [--name NAME]");
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  static generator load(parse(argc, argv));  // static: its buffer is large
  load.run();
  load.print();
}
