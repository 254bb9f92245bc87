// Two designs that look right and are not, for the tests of the tests only: neither is part of the product's binary.
//
// check_then_forward: reads the marks, waits for them, then sends the writes bare. Whatever happens between is not seen.
// envelope: WATCH, EVALSHA check, MULTI, writes, EXEC in one pipeline. It needs the check's success to be disabled by it,
// and fails open when the check does not run at all, e.g. NOSCRIPT after SCRIPT FLUSH.
#include "gate/redis/armed_link.hpp"
#include "wire/resp_request.hpp"

namespace fencegate::gate {

#ifdef FENCEGATE_BROKEN_ENVELOPE
namespace {

// Dirties the watch of a mark that is not the token.
constexpr std::string_view check =
    "for i = 1, #KEYS do local is = redis.call('GET', KEYS[i]) if is ~= ARGV[i] then redis.call('SET', KEYS[i], is or "
    "'') "
    "end end return 1";
constexpr std::string_view check_sha = "224a375c1159a475897fc69d927360a9b1389399";

thread_local bool script_loaded = false;

}  // namespace

void armed_link::send_envelope() {
  std::vector<std::string_view> watch{"WATCH"}, eval{"EVALSHA", check_sha};
  std::vector<std::string_view> keys, digits;
  for (const auto& one : claims_.items()) {
    if (one.status != claim_status::held) continue;
    keys.push_back(one.cell->key);
    digits.push_back(one.digits);
  }
  const std::string count = std::to_string(keys.size());
  watch.insert(watch.end(), keys.begin(), keys.end());
  eval.push_back(count);
  eval.insert(eval.end(), keys.begin(), keys.end());
  eval.insert(eval.end(), digits.begin(), digits.end());
  if (!script_loaded) wire::append_command_of(out, std::string_view("SCRIPT"), std::string_view("LOAD"), check);
  wire::append_command(out, watch);
  wire::append_command(out, eval);
  for (int i = script_loaded ? 2 : 3; i > 0; --i) expect({awaits::relay, true});
  script_loaded = true;
}
#endif

}  // namespace fencegate::gate
