// uses: gate
// Writers that share a link under several tags, in front of an honest Redis, which may refuse any command, lose the link in
// front of any or with its reply, and whose marks may be raised in front of any. Input: a byte of options, then actions of one byte, some
// with an operand; while Redis answers, what comes next happens between two of its commands.
//
// Claims: no write is applied once a mark is above its token; each writer hears of its write once; what came back, or
// was taken back, is never applied; what was answered without an error was applied once.
#include "../unit/gate/redis/fake_redis.hpp"
#include "gate/redis/shared_writes.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

enum class verdict { none, answered, refused, back, lost };

struct writer final : gate::shared_writer {
  void on_shared(std::optional<std::string_view> answer) override {
    require(waits);
    waits = false;
    said = !answer ? verdict::back : answer->starts_with('-') ? verdict::refused : verdict::answered;
  }
  void on_shared_lost() override {
    require(waits);
    waits = false;
    said = verdict::lost;
  }
  [[nodiscard]] bool gone() const override { return has_gone; }

  std::string line;  // as the fake notes it
  fence::claims_list tag;
  verdict said = verdict::none;
  bool waits = true;
  bool has_gone = false;
};

constexpr const char* refusals[] = {"-NOPERM x\r\n", "-OOM x\r\n", "-ERR x\r\n", "-LOADING x\r\n", "-FENCED x\r\n"};
constexpr std::size_t writes_max = 200;
const fence::claims_list tags[] = {{{"orders", fence::token(34)}},
                                   {{"stock", fence::token(7)}},
                                   {{"stock", fence::token(7)}, {"orders", fence::token(34)}},
                                   {{"orders", fence::token(35)}}};

struct world {
  world(const std::uint8_t* bytes, std::size_t size) : left(bytes, bytes + size) {
    std::reverse(left.begin(), left.end());
    const std::uint8_t options = byte();
    host.hold_answers = (options & 1) != 0;
    host.marks["orders"] = fence::token(34);
    host.marks["stock"] = fence::token(7);
    redis.tokens_of = [this](const std::vector<std::string>& command) {
      std::map<std::string, fence::token> out;
      for (const auto& one : writers.at(std::stoul(command.at(1).substr(1)))->tag) out[one.resource] = one.presented;
      return out;
    };
    redis.reply_piece = (options & 2) != 0 ? 3 : ~std::size_t{0};
    redis.spoil = [this](std::size_t, const auto&) -> std::optional<std::string> {
      act();
      return std::exchange(refusal, std::nullopt);
    };
  }

  std::uint8_t byte() {
    if (left.empty()) return 0;
    const std::uint8_t b = left.back();
    left.pop_back();
    return b;
  }

  // As gate/redis/redis_shared_link does it with each event.
  void after_event() {
    link.feed();
    link.hand_out();
  }

  void add(bool increments) {
    if (!link.ready() || link.broken() || ended || writers.size() >= writes_max) return;
    auto one = std::make_shared<writer>();
    one->tag = tags[byte() % std::size(tags)];
    // Its engine has seen that its marks are its tokens, and perhaps they have been raised since.
    for (const auto& claim : one->tag)
      if (claim.presented == fence::token(35) && host.marks["orders"] != claim.presented) return;
    const std::string key = "k" + std::to_string(writers.size());
    one->line = increments ? "INCR " + key : "SET " + key + " v";
    std::string command;
    if (increments)
      wire::append_command_of(command, std::string_view("INCR"), key);
    else
      wire::append_command_of(command, std::string_view("SET"), key, std::string_view("v"));
    gate::batched as{command.size(), true, false, !increments};
    as.plain_set = !increments;
    writers.push_back(one);
    if (link.add(command, as, one, one->tag)) return;
    one->waits = false;
    one->said = verdict::back;
  }

  std::shared_ptr<writer> any() {
    const std::uint8_t n = byte();
    return writers.empty() ? nullptr : writers[writers.size() - 1 - n % std::min<std::size_t>(writers.size(), 8)];
  }

  void act() {
    switch (byte() % 18) {
      case 1: host.marks["orders"] = fence::token(35); break;
      case 16: host.marks["stock"] = fence::token(8); break;
      case 17: host.clock += std::chrono::milliseconds(1'500); break;
      case 2: refusal = refusals[byte() % std::size(refusals)]; break;
      case 3: (byte() % 2 == 0 ? redis.cut_behind : redis.cut_before) = redis.replies.size() + byte() % 32; break;
      case 4:
        if (const auto one = any(); one != nullptr && one->waits && !ended && link.take_back(*one)) {
          one->waits = false;
          one->said = verdict::back;
        }
        break;
      case 5:
        if (const auto one = any()) one->has_gone = true;
        break;
      case 6: link.give_back(); break;
      case 7:
        if (host.holds_answers()) host.answer_next();
        break;
      case 8: redis.epoch = "e2"; break;
      case 9:
        redis.epoch = "e1";
        host.marks.erase("orders");
        break;
      case 10:
      case 11:
      case 12: add(true); break;
      case 13:
      case 14:
      case 15: add(false); break;
      default: after_event();
    }
  }

  void run() {
    while (!left.empty() && !redis.cut && !link.broken()) {
      act();
      after_event();
      redis.serve(link);
      after_event();
    }
    if (link.broken() || redis.cut || byte() % 2 == 0) end();
    judge();
  }

  void end() {
    ended = true;
    link.on_backend_end();
    link.hand_out();
    link.end();
  }

  void judge() {
    require(redis.violations.empty());
    for (const auto& one : writers) {
      const auto times = std::count(redis.applied.begin(), redis.applied.end(), one->line);
      require(times <= 1);
      if (one->said == verdict::back || one->said == verdict::refused) require(times == 0);
      if (one->said == verdict::answered) require(times == 1);
      if (ended && !one->has_gone) require(!one->waits);
    }
  }

  std::vector<std::uint8_t> left;  // of the input, last byte first
  test::fake_host host;
  test::fake_redis redis{host};
  settings::redis_gate gate;
  backend::mark_memory memory;
  metrics::gate stats{"fuzz"};
  gate::session_profile like = greeting();
  gate::shared_writes link{host, gate, memory, stats, like};
  std::vector<std::shared_ptr<writer>> writers;
  std::optional<std::string> refusal;
  bool ended = false;

  static gate::session_profile greeting() {
    gate::session_profile out;
    wire::append_command_of(out.bytes, std::string_view("INFO"), std::string_view("server"));
    out.commands = 1;
    out.server = "r1";
    return out;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  world(data, size).run();
  return 0;
}
