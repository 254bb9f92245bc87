#include "backend/command_table.hpp"

#include "backend/command_roles.hpp"
#include "base/ascii.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

namespace fencegate::backend {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), ascii_lower);
  return out;
}

bool to_int(std::string_view text, int& out) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc{} && end == text.data() + text.size();
}

int int_of(const wire::reply_value& v) {
  int out = 0;
  return to_int(v.text, out) ? out : 0;
}

// A map that RESP2 flattened: key, value, key, value.
const wire::reply_value* member(const wire::reply_value& map, std::string_view key) {
  for (std::size_t i = 0; i + 1 < map.elements.size(); i += 2)
    if (map.elements[i].text == key) return &map.elements[i + 1];
  return nullptr;
}

bool has(const wire::reply_value& list, std::string_view item) {
  return std::any_of(list.elements.begin(), list.elements.end(), [&](const auto& e) { return e.text == item; });
}

// nullopt-like: false when the specification has a part that only the server can evaluate.
bool read_key_spec(const wire::reply_value& entry, key_spec& out) {
  const auto* begin = member(entry, "begin_search");
  const auto* find = member(entry, "find_keys");
  if (begin == nullptr || find == nullptr) return false;
  const auto* begin_type = member(*begin, "type");
  const auto* begin_spec = member(*begin, "spec");
  const auto* find_type = member(*find, "type");
  const auto* find_spec = member(*find, "spec");
  if (begin_type == nullptr || begin_spec == nullptr || find_type == nullptr || find_spec == nullptr) return false;
  const auto number = [](const wire::reply_value& map, std::string_view key) {
    const auto* v = member(map, key);
    return v == nullptr ? 0 : int_of(*v);
  };
  if (begin_type->text == "index") {
    out.search = key_spec::begin::index;
    out.position = number(*begin_spec, "index");
  } else if (begin_type->text == "keyword") {
    out.search = key_spec::begin::keyword;
    out.position = number(*begin_spec, "startfrom");
    const auto* keyword = member(*begin_spec, "keyword");
    if (keyword == nullptr) return false;
    out.keyword = keyword->text;
  } else {
    return false;
  }
  if (find_type->text == "range") {
    out.keys = key_spec::find::range;
    out.last = number(*find_spec, "lastkey");
    out.step = std::max(1, number(*find_spec, "keystep"));
    out.limit = number(*find_spec, "limit");
  } else if (find_type->text == "keynum") {
    out.keys = key_spec::find::keynum;
    out.keynum_index = number(*find_spec, "keynumidx");
    out.keynum_first = number(*find_spec, "firstkey");
    out.step = std::max(1, number(*find_spec, "keystep"));
  } else {
    return false;
  }
  return true;
}

command_role role_from_flags(std::string_view name, const wire::reply_value& flags) {
  const bool blocking = has(flags, "blocking") || blocks(name);
  if (has(flags, "write")) return blocking ? command_role::blocking_write : command_role::write;
  if (has(flags, "readonly"))
    return blocking || has(flags, "no_multi") ? command_role::blocking_read : command_role::read;
  return command_role::write;
}

void note_what_the_name_tells(command_spec& spec) {
  spec.in_script = answer_in_script(spec.name);
  spec.short_answer = answers_shortly(spec.name);
  spec.stays_with_connection = stays_with_connection(spec.name);
}

void read_keys(const wire::reply_value& entry, command_spec& spec) {
  const bool movable = has(entry.elements[2], "movablekeys");
  if (entry.elements.size() >= 9 && !entry.elements[8].elements.empty()) {
    for (const auto& raw : entry.elements[8].elements) {
      const auto* flags = member(raw, "flags");
      if (flags != nullptr && has(*flags, "not_key")) continue;
      key_spec one;
      if (read_key_spec(raw, one))
        spec.keys.push_back(std::move(one));
      else
        spec.ask_server = true;
      if (flags != nullptr && has(*flags, "incomplete")) spec.ask_server = true;
    }
    return;
  }
  const int first = int_of(entry.elements[3]);
  if (movable) {
    spec.ask_server = true;
  } else if (first > 0) {
    key_spec one;
    one.position = first;
    const int last = int_of(entry.elements[4]);
    one.last = last >= 0 ? last - first : last;
    one.step = std::max(1, int_of(entry.elements[5]));
    spec.keys.push_back(one);
  }
}

}  // namespace

void command_table::add(const wire::reply_value& entry, const std::vector<std::string>& allowed) {
  if (entry.elements.size() < 6) return;
  command_spec spec;
  spec.name = lower(entry.elements[0].text);
  const auto& flags = entry.elements[2];
  spec.arity = int_of(entry.elements[1]);
  spec.denyoom = has(flags, "denyoom");
  spec.noscript = has(flags, "noscript");
  note_what_the_name_tells(spec);
  spec.role = role_by_name(spec.name).value_or(role_from_flags(spec.name, flags));
  // Before 7.0 the server does not list the subcommands, and says of all what one of them may do.
  const bool has_keys = int_of(entry.elements[3]) > 0 || has(flags, "movablekeys");
  const bool touches_keys = has(flags, "write") || (has(flags, "readonly") && has_keys);
  if (spec.role == command_role::other && touches_keys) spec.role = role_from_flags(spec.name, flags);
  if (spec.role == command_role::refused && std::find(allowed.begin(), allowed.end(), spec.name) != allowed.end())
    spec.role = has(flags, "write") ? command_role::write : command_role::other;
  read_keys(entry, spec);
  // SORT's STORE is the only incomplete specification of Redis 7.0 itself that writes; the gate reads it without asking.
  if (spec.name == "sort" || spec.name == "sort_ro") {
    spec.sort_store = spec.name == "sort";
    spec.ask_server = false;
  }
  if (entry.elements.size() >= 10 && !entry.elements[9].elements.empty()) {
    spec.container = true;
    for (const auto& sub : entry.elements[9].elements) add(sub, allowed);
  }
  std::string name = spec.name;
  specs_.insert_or_assign(std::move(name), std::move(spec));
}

// What must be known even about a server that does not list it (older versions, renamed commands).
void command_table::add_builtin(const std::vector<std::string>& allowed) {
  using enum command_role;
  std::vector<std::string_view> names{
      "multi",        "exec",           "discard",        "watch",        "unwatch",        "select",
      "auth",         "hello",          "reset",          "quit",         "fence",          "subscribe",
      "psubscribe",   "ssubscribe",     "unsubscribe",    "punsubscribe", "sunsubscribe",   "monitor",
      "ping",         "echo",           "client|setname", "client|reply", "client|caching", "client|kill",
      "client|pause", "client|unblock", "config|set",     "flushall",     "flushdb",        "swapdb",
      "debug",        "replicaof",      "slaveof",        "sync",         "psync",          "shutdown"};
  for (const auto subcommand : subcommands_by_name()) names.push_back(subcommand);
  for (const auto name : names) {
    if (specs_.contains(name)) continue;
    command_spec spec;
    spec.name = name;
    spec.role = role_by_name(name).value_or(write);
    note_what_the_name_tells(spec);
    if (spec.role == refused && std::find(allowed.begin(), allowed.end(), spec.name) != allowed.end())
      spec.role = other;
    specs_.emplace(std::string(name), std::move(spec));
  }
  for (const std::string_view name : {"client", "config", "script", "acl", "function", "cluster", "module"}) {
    auto [at, added] = specs_.try_emplace(std::string(name));
    if (added) {
      at->second.name = name;
      at->second.role = write;
    }
    at->second.container = true;
  }
}

result<std::shared_ptr<const command_table>> command_table::build(const wire::reply_value& reply,
                                                                  const std::vector<std::string>& allowed,
                                                                  const std::vector<std::string_view>& not_found) {
  if (reply.type != '*' || reply.elements.empty()) return error{"the server's answer to COMMAND is not a list"};
  auto table = std::make_shared<command_table>();
  for (const auto& entry : reply.elements) table->add(entry, allowed);
  constexpr std::string_view mset = "mset";
  table->has_mset_ =
      table->specs_.contains(mset) && std::find(not_found.begin(), not_found.end(), mset) == not_found.end();
  table->renamed_ = std::any_of(not_found.begin(), not_found.end(), [&](std::string_view name) {
    return name != mset && table->specs_.contains(name) &&
           std::find(allowed.begin(), allowed.end(), name) == allowed.end();
  });
  table->add_builtin(allowed);
  return std::shared_ptr<const command_table>(std::move(table));
}

std::shared_ptr<const command_table> command_table::empty() {
  static const std::shared_ptr<const command_table> none = [] {
    auto table = std::make_shared<command_table>();
    table->add_builtin({});
    return std::shared_ptr<const command_table>(std::move(table));
  }();
  return none;
}

const command_spec& command_table::find(std::string_view name, std::string_view first_argument) const {
  static const command_spec nobodys{};
  const auto refused = [](std::string_view why) {
    command_spec made;
    made.role = command_role::refused;
    made.refusal = why;
    return made;
  };
  // Redis compares names up to a NUL: it may take "exec\0x" for EXEC, in the midst of the gate's MULTI.
  static const command_spec disguised = refused("a command's name with a NUL in it could be taken for another command");
  static const command_spec perhaps_renamed = refused(
      "this server has renamed commands (rename-command), and this may be one of those that fencegate refuses or has "
      "to "
      "know; take them away by ACL, or rename them to \"\"");
  const command_spec& unknown = renamed_ ? perhaps_renamed : nobodys;
  constexpr std::size_t longest = 64;
  if (name.find('\0') != std::string_view::npos) return disguised;
  if (name.size() > longest) return unknown;
  std::array<char, 2 * longest + 1> key;
  std::transform(name.begin(), name.end(), key.begin(), ascii_lower);
  auto found = specs_.find(std::string_view(key.data(), name.size()));
  if (found == specs_.end() || found->first.find('|') != std::string::npos) return unknown;
  const command_spec& spec = found->second;
  if (!spec.container || first_argument.empty()) return spec;
  if (first_argument.find('\0') != std::string_view::npos) return disguised;
  if (first_argument.size() > longest) return nobodys;
  key[name.size()] = '|';
  std::transform(first_argument.begin(), first_argument.end(),
                 key.begin() + static_cast<std::ptrdiff_t>(name.size()) + 1, ascii_lower);
  found = specs_.find(std::string_view(key.data(), name.size() + 1 + first_argument.size()));
  return found == specs_.end() ? nobodys : found->second;
}

namespace {

// Redis compares keywords up to a NUL.
bool says(std::string_view argument, std::string_view keyword) {
  return wire::iequals(argument.substr(0, argument.find('\0')), keyword);
}

bool add_keys(const key_spec& spec, std::size_t begin, const std::vector<std::string_view>& arguments,
              std::vector<std::size_t>& keys) {
  const auto count = static_cast<std::int64_t>(arguments.size());
  auto first = static_cast<std::int64_t>(begin);
  std::int64_t last = 0;
  if (spec.keys == key_spec::find::range) {
    if (spec.last >= 0)
      last = first + spec.last;
    else if (spec.limit <= 1)
      last = count + spec.last;
    else
      last = first + ((count - first) / spec.limit + spec.last);
  } else {
    const std::int64_t at = first + spec.keynum_index;
    int number = 0;
    if (at >= count || !to_int(arguments[static_cast<std::size_t>(at)], number) || number < 0) return false;
    first += spec.keynum_first;
    last = first + (static_cast<std::int64_t>(number) - 1) * spec.step;
  }
  if (last >= count) return false;
  for (std::int64_t i = first; i <= last; i += spec.step) keys.push_back(static_cast<std::size_t>(i));
  return true;
}

}  // namespace

key_search find_keys(const command_spec& spec, const std::vector<std::string_view>& arguments,
                     std::vector<std::size_t>& keys) {
  keys.clear();
  // Nobody knows what an unknown command does with its arguments: each may be a key.
  if (spec.name.empty())
    for (std::size_t i = 1; i < arguments.size(); ++i) keys.push_back(i);
  bool valid = true;
  for (const key_spec& one : spec.keys) {
    if (one.search == key_spec::begin::index) {
      const bool there = one.position > 0 && static_cast<std::size_t>(one.position) < arguments.size();
      valid = there && add_keys(one, static_cast<std::size_t>(one.position), arguments, keys) && valid;
      continue;
    }
    // Behind every such word: of two STOREs the last counts, and a consumer may be called STREAMS.
    for (std::size_t i = 1; i + 1 < arguments.size(); ++i)
      if (says(arguments[i], one.keyword)) valid = add_keys(one, i + 1, arguments, keys) && valid;
  }
  if (spec.sort_store)
    for (std::size_t i = 2; i + 1 < arguments.size(); ++i)
      if (says(arguments[i], "STORE")) keys.push_back(i + 1);
  if (spec.ask_server) return key_search::ask_server;
  return valid ? key_search::found : key_search::invalid;
}

}  // namespace fencegate::backend
