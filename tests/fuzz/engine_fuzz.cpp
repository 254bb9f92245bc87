// uses: gate
// A hostile client on one side of a session machine, a hostile or an honest Redis on the other. Input: a byte of
// options, then actions of one byte, some with an operand: bytes of the client, replies, a mark raised by somebody else,
// a timer.
//
// Claims: no crash, whatever either side says. And with an honest Redis, which may refuse any command at any time: no
// write of the client is applied once the mark is above its token, and no key of the fence is changed by it.
#include "../unit/gate/redis/fake_redis.hpp"

#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

class input {
 public:
  input(const std::uint8_t* bytes, std::size_t size) : left_(reinterpret_cast<const char*>(bytes), size) {}
  [[nodiscard]] bool over() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto b = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return b;
  }
  std::string_view text(std::size_t size) {
    const auto out = left_.substr(0, size);
    left_.remove_prefix(out.size());
    return out;
  }

 private:
  std::string_view left_;
};

// Commands worth sending often; the rest is the fuzzer's own.
constexpr const char* commands[] = {"SET a 1\r\n",
                                    "GET a\r\n",
                                    "INCR n\r\n",
                                    "DEL a\r\n",
                                    "MULTI\r\n",
                                    "EXEC\r\n",
                                    "DISCARD\r\n",
                                    "WATCH a\r\n",
                                    "UNWATCH\r\n",
                                    "SELECT 1\r\n",
                                    "SELECT 0\r\n",
                                    "CLIENT REPLY OFF\r\n",
                                    "CLIENT REPLY ON\r\n",
                                    "CLIENT REPLY SKIP\r\n",
                                    "BLPOP a 1\r\n",
                                    "PING\r\n",
                                    "NOSUCH x\r\n",
                                    "FLUSHALL\r\n",
                                    "SET fencegate:mark:{orders} 1\r\n",
                                    "FENCE CALL orders 34 SET a 2\r\n",
                                    "FENCE SET orders 34\r\n",
                                    "CLIENT SETNAME fence:orders=34\r\n",
                                    "HELLO 3\r\n",
                                    "HELLO 2 SETNAME fence:orders=34\r\n",
                                    "RESET\r\n",
                                    "FENCE GET\r\n",
                                    "FENCE MARK orders\r\n"};
constexpr const char* replies[] = {"+OK\r\n",
                                   "+QUEUED\r\n",
                                   "*2\r\n$2\r\n34\r\n$2\r\ne1\r\n",
                                   "*2\r\n$2\r\n35\r\n$2\r\ne1\r\n",
                                   "*-1\r\n",
                                   "$-1\r\n",
                                   "*1\r\n+OK\r\n",
                                   "*2\r\n+OK\r\n+OK\r\n",
                                   "*0\r\n",
                                   "-ERR x\r\n",
                                   "-OOM x\r\n",
                                   "-EXECABORT x\r\n",
                                   "-NOPERM x\r\n",
                                   "-FENCEGATEMARK x\r\n",
                                   "-FENCEGATERAN ERR x\r\n",
                                   ":1\r\n",
                                   "_\r\n",
                                   "+PONG\r\n",
                                   "+RESET\r\n",
                                   ">2\r\n+a\r\n+b\r\n",
                                   "|1\r\n+a\r\n+b\r\n",
                                   "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
                                   ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"};
constexpr const char* refusals[] = {"-NOPERM x\r\n", "-OOM x\r\n", "-ERR x\r\n", "-LOADING x\r\n"};

void client(gate::redis_engine& engine, std::string_view bytes) {
  engine.from_client.append(bytes);
  engine.on_client_bytes();
}

void act_as_client(gate::redis_engine& engine, std::uint8_t action, input& in) {
  if (action < 0xe0)
    client(engine, commands[action % std::size(commands)]);
  else
    client(engine, in.text(in.byte()));
}

void fire_timer(test::fake_host& host, gate::redis_engine& engine) {
  if (!host.timer) return;
  host.clock += *host.timer;
  host.timer.reset();
  engine.on_timer();
}

// Redis says what it likes: only crashes count.
void against_a_hostile_backend(test::fake_host& host, gate::redis_engine& engine, input& in) {
  test::sent_commands commands;
  while (!in.over() && !engine.closing()) {
    const std::uint8_t action = in.byte();
    switch (action % 8) {
      case 0:
      case 1:
      case 2: act_as_client(engine, in.byte(), in); break;
      case 3:
      case 4:
      case 5: {
        engine.from_backend.append(replies[in.byte() % std::size(replies)]);
        engine.on_backend_bytes();
        break;
      }
      case 6:
        engine.from_backend.append(in.text(in.byte() % 32));
        engine.on_backend_bytes();
        break;
      default:
        fire_timer(host, engine);
        if (host.holds_answers()) host.answer_next();
    }
    commands.take(engine.to_backend);
    if (!engine.closing()) commands.compare(engine.commands_expected());
    engine.to_backend.clear();
    engine.to_client.clear();
  }
}

// The honest one: every write of the client is noted, and whether its token was stale by then. All its tokens are 34.
void against_an_honest_backend(test::fake_host& host, gate::redis_engine& engine, input& in) {
  test::fake_redis redis(host);
  redis.tokens["orders"] = fence::token(34);
  std::uint8_t refuse_in = 0, refusal = 0, raise_in = 0;
  redis.spoil = [&](std::size_t, const auto&) -> std::optional<std::string> {
    if (raise_in != 0 && --raise_in == 0) host.marks["orders"] = fence::token(35);
    if (refuse_in != 0 && --refuse_in == 0) return refusals[refusal % std::size(refusals)];
    return std::nullopt;
  };
  while (!in.over() && !engine.closing()) {
    const std::uint8_t action = in.byte();
    switch (action % 8) {
      case 0: redis.serve(engine); break;
      case 1:
        refuse_in = in.byte();
        refusal = in.byte();
        break;
      case 2: raise_in = in.byte(); break;
      case 3:
        if (host.holds_answers()) host.answer_next();
        break;
      default: act_as_client(engine, in.byte(), in);
    }
    require(redis.violations.empty());
    const auto mark = host.marks.find("orders");
    require(mark == host.marks.end() || mark->second == fence::token(34) || mark->second == fence::token(35));
  }
  redis.serve(engine);
  require(redis.violations.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  input in(data, size);
  const std::uint8_t options = in.byte();
  settings::redis_gate settings;
  if ((options & 2) != 0) settings.policy.equal = fence::equal_token::reject;
  if ((options & 4) != 0) settings.policy.read = fence::reads::fence;
  test::fake_host host;
  host.hold_answers = (options & 8) != 0;
  if ((options & 16) != 0) host.marks["orders"] = fence::token(34);
  backend::mark_memory marks;
  metrics::gate stats("fuzz");
  gate::redis_engine engine(host, settings, marks, stats);
  if ((options & 1) != 0)
    against_an_honest_backend(host, engine, in);
  else
    against_a_hostile_backend(host, engine, in);
  return 0;
}
