// What the Redis server says about its commands (COMMAND: flags, arity, key specifications), and what follows from it for
// the fence: which commands write, which keys they touch, which may stand inside the gate's MULTI, which are refused.
//
// Default deny: a command that the server does not flag `readonly` and that is not in the short table of harmless ones
// in command_table.cpp is a write.
#pragma once

#include "base/result.hpp"
#include "wire/resp_reply.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fencegate::backend {

enum class command_role : std::uint8_t {
  read,            // may travel inside a batch, or bare
  write,           // fenced
  blocking_read,   // XREAD, WAIT: bare; may take long
  blocking_write,  // BLPOP …: would execute after the check; polled when fenced
  other,           // neither reads keys nor writes: bare, never inside the gate's MULTI
  refused,         // could damage marks or escape the fence
  multi,
  exec,
  discard,
  watch,
  unwatch,
  select,
  auth,
  hello,
  reset,
  quit,
  client_setname,
  client_reply,
  client_caching,
  subscribe,
  unsubscribe,  // and their pattern and shard kin: several replies each
  monitor,
  fence,  // the gate's own FENCE command; unknown to the server
};

// Its answer may take until somebody else has acted.
[[nodiscard]] constexpr bool may_block(command_role role) {
  return role == command_role::blocking_read || role == command_role::blocking_write;
}

[[nodiscard]] constexpr bool writes(command_role role) {
  return role == command_role::write || role == command_role::blocking_write;
}

// What becomes of a command's answer in backend::checked_command, whose Lua knows neither RESP3's nulls within arrays nor
// integers beyond 2^53.
enum class script_answer : std::uint8_t {
  unknown,  // nobody has looked: what RESP2 says is kept, of RESP3 something could get lost
  typed,    // all that RESP3 says is kept
  untyped,  // RESP3 says no more than RESP2, and there may be nulls in it
  streams,  // XREADGROUP
};

// Where the server says that a command's keys are (https://redis.io/docs/reference/key-specs/).
struct key_spec {
  enum class begin : std::uint8_t { index, keyword } search = begin::index;
  int position = 0;     // index: of the first key; keyword: where to start searching, negative = from the end
  std::string keyword;  // upper case
  enum class find : std::uint8_t { range, keynum } keys = find::range;
  int last = 0, step = 1, limit = 0;       // range; relative to the first key, or negative = from the end
  int keynum_index = 0, keynum_first = 0;  // keynum; relative to the begin
};

struct command_spec {
  std::string name;  // lower case, "config|set" for a subcommand
  command_role role = command_role::write;
  int arity = 0;
  bool denyoom = false;
  bool noscript = false;
  script_answer in_script = script_answer::unknown;
  bool short_answer = false;           // see answers_shortly()
  bool stays_with_connection = false;  // see stays_with_connection()
  bool ask_server = false;             // its keys can be known only by COMMAND GETKEYS
  bool sort_store = false;        // SORT: the argument behind STORE is a key too, which its specifications leave out
  bool container = false;         // arguments[1] names a subcommand
  std::string_view refusal = {};  // why a command without a name is refused; static storage
  std::vector<key_spec> keys;

  // So many words, the name included, are what the server's table asks for.
  [[nodiscard]] bool fits(std::size_t words) const {
    const auto count = static_cast<std::int64_t>(words);
    return arity >= 0 ? arity == 0 || count == arity : count >= -static_cast<std::int64_t>(arity);
  }
};

class command_table {
 public:
  // `reply` is the reply of COMMAND (RESP2). `allowed`: lower-case names whose refusal the operator lifted. `not_found`:
  // those of critical_commands(), and "mset", that the server does not know by their names. COMMAND lists commands by the
  // names that they were born with: one that is in both lists goes by another name here (rename-command), which nobody
  // tells.
  [[nodiscard]] static result<std::shared_ptr<const command_table>> build(
      const wire::reply_value& reply, const std::vector<std::string>& allowed,
      const std::vector<std::string_view>& not_found = {});
  // Before the server has answered: knows nothing, so everything but the connection's own commands is a write.
  [[nodiscard]] static std::shared_ptr<const command_table> empty();

  // An unknown command is a write without a name or known keys, or refused, where it may be a renamed one: EXEC, DISCARD
  // or RESET under another name would end the gate's MULTI, FLUSHALL take the marks. Subcommands are resolved by arguments[1]. A name with a
  // NUL in it is refused: Redis may take it for another one.
  [[nodiscard]] const command_spec& find(std::string_view name, std::string_view first_argument) const;

  [[nodiscard]] std::size_t size() const { return specs_.size(); }
  // MSET is known by its own name: SETs may go as one MSET.
  [[nodiscard]] bool has_mset() const { return has_mset_; }

 private:
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  void add(const wire::reply_value& entry, const std::vector<std::string>& allowed);
  void add_builtin(const std::vector<std::string>& allowed);

  bool renamed_ = false;  // one of critical_commands()
  bool has_mset_ = false;
  std::unordered_map<std::string, command_spec, name_hash, std::equal_to<>> specs_;
};

enum class key_search : std::uint8_t {
  found,       // `keys` holds the indexes of all keys (maybe none)
  ask_server,  // COMMAND GETKEYS has to tell
  invalid,     // the arguments do not fit the command's form; the server will reject it, but do not rely on it
};

// Indexes into `arguments` of the keys of a command; of an unknown one, of all arguments.
[[nodiscard]] key_search find_keys(const command_spec& spec, const std::vector<std::string_view>& arguments,
                                   std::vector<std::size_t>& keys);

// Keys that belong to fencegate itself.
inline constexpr std::string_view reserved_prefix = "fencegate:";
[[nodiscard]] inline bool is_reserved(std::string_view key) { return key.starts_with(reserved_prefix); }

}  // namespace fencegate::backend
