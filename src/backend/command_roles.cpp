#include "backend/command_roles.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace fencegate::backend {
namespace {

using enum command_role;

// Checked against redis-server 7.0.15's COMMAND, entry by entry. Containers that are not listed whole are listed by
// subcommand; a subcommand that is not listed is refused with its container or, where that is not listed, a write.
const std::unordered_map<std::string_view, command_role> roles{
    // The gate's state machine owns these.
    {"multi", multi},
    {"exec", exec},
    {"discard", discard},
    {"watch", watch},
    {"unwatch", unwatch},
    {"select", select},
    {"auth", auth},
    {"hello", hello},
    {"reset", reset},
    {"quit", quit},
    {"fence", fence},
    {"client|setname", client_setname},
    {"client|reply", client_reply},
    {"client|caching", client_caching},
    {"subscribe", subscribe},
    {"psubscribe", subscribe},
    {"ssubscribe", subscribe},
    {"unsubscribe", unsubscribe},
    {"punsubscribe", unsubscribe},
    {"sunsubscribe", unsubscribe},
    {"monitor", monitor},

    // Neither `readonly` nor `write` to the server, and harmless; may travel in a batch.
    {"ping", read},
    {"echo", read},
    {"time", read},

    // May take long without writing.
    {"wait", blocking_read},
    {"waitaof", blocking_read},

    // Harmless, bare.
    {"client", other},
    {"client|getname", other},
    {"client|id", other},
    {"client|info", other},
    {"client|list", other},
    {"client|help", other},
    {"client|setinfo", other},
    {"client|tracking", other},
    {"client|trackinginfo", other},
    {"client|getredir", other},
    {"client|no-evict", other},
    {"client|no-touch", other},
    {"client|unpause", other},
    {"command", other},
    {"command|count", other},
    {"command|docs", other},
    {"command|getkeys", other},
    {"command|getkeysandflags", other},
    {"command|help", other},
    {"command|info", other},
    {"command|list", other},
    {"config", other},
    {"config|get", other},
    {"config|help", other},
    {"config|resetstat", other},
    {"info", other},
    {"lastsave", other},
    {"role", other},
    {"slowlog", other},
    {"slowlog|get", other},
    {"slowlog|help", other},
    {"slowlog|len", other},
    {"slowlog|reset", other},
    {"latency", other},
    {"latency|doctor", other},
    {"latency|graph", other},
    {"latency|help", other},
    {"latency|histogram", other},
    {"latency|history", other},
    {"latency|latest", other},
    {"latency|reset", other},
    {"memory", other},
    {"memory|doctor", other},
    {"memory|help", other},
    {"memory|malloc-stats", other},
    {"memory|purge", other},
    {"memory|stats", other},
    {"object", other},
    {"object|help", other},
    {"xinfo", other},
    {"xinfo|help", other},
    {"xgroup", other},
    {"xgroup|help", other},
    {"pubsub", other},
    {"pubsub|channels", other},
    {"pubsub|help", other},
    {"pubsub|numpat", other},
    {"pubsub|numsub", other},
    {"pubsub|shardchannels", other},
    {"pubsub|shardnumsub", other},
    {"save", other},
    {"bgsave", other},
    {"bgrewriteaof", other},
    {"script", other},
    {"script|exists", other},
    {"script|help", other},
    {"script|load", other},
    {"function", other},
    {"function|dump", other},
    {"function|help", other},
    {"function|list", other},
    {"function|stats", other},
    {"function|kill", other},
    {"acl", other},
    {"acl|cat", other},
    {"acl|dryrun", other},
    {"acl|genpass", other},
    {"acl|getuser", other},
    {"acl|help", other},
    {"acl|list", other},
    {"acl|users", other},
    {"acl|whoami", other},
    {"module", other},
    {"module|help", other},
    {"module|list", other},
    {"cluster", other},
    {"cluster|count-failure-reports", other},
    {"cluster|countkeysinslot", other},
    {"cluster|getkeysinslot", other},
    {"cluster|help", other},
    {"cluster|info", other},
    {"cluster|keyslot", other},
    {"cluster|links", other},
    {"cluster|myid", other},
    {"cluster|myshardid", other},
    {"cluster|nodes", other},
    {"cluster|replicas", other},
    {"cluster|shards", other},
    {"cluster|slaves", other},
    {"cluster|slots", other},
    {"readonly", other},
    {"readwrite", other},
    {"asking", other},

    // Could damage marks or escape the fence.
    {"flushall", refused},
    {"flushdb", refused},
    {"swapdb", refused},
    {"debug", refused},
    {"config|set", refused},
    {"config|rewrite", refused},
    {"replicaof", refused},
    {"slaveof", refused},
    {"replconf", refused},
    {"failover", refused},
    {"sync", refused},
    {"psync", refused},
    {"shutdown", refused},
    {"script|flush", refused},
    {"script|kill", refused},
    {"script|debug", refused},
    {"function|flush", refused},
    {"function|delete", refused},
    {"function|restore", refused},
    {"acl|setuser", refused},
    {"acl|deluser", refused},
    {"acl|load", refused},
    {"acl|save", refused},
    {"acl|log", refused},
    {"module|load", refused},
    {"module|loadex", refused},
    {"module|unload", refused},
    {"migrate", refused},
    {"restore-asking", refused},
    {"pfdebug", refused},
    {"pfselftest", refused},
    {"client|kill", refused},
    {"client|pause", refused},
    {"client|unblock", refused},
    {"cluster|addslots", refused},
    {"cluster|addslotsrange", refused},
    {"cluster|bumpepoch", refused},
    {"cluster|delslots", refused},
    {"cluster|delslotsrange", refused},
    {"cluster|failover", refused},
    {"cluster|flushslots", refused},
    {"cluster|forget", refused},
    {"cluster|meet", refused},
    {"cluster|replicate", refused},
    {"cluster|reset", refused},
    {"cluster|saveconfig", refused},
    {"cluster|set-config-epoch", refused},
    {"cluster|setslot", refused},
};

}  // namespace

std::optional<command_role> role_by_name(std::string_view lower_name) {
  const auto found = roles.find(lower_name);
  if (found == roles.end()) return std::nullopt;
  return found->second;
}

bool blocks(std::string_view lower_name) {
  static const std::unordered_set<std::string_view> names{"blmove", "blmpop",   "blpop",    "brpop", "brpoplpush",
                                                          "bzmpop", "bzpopmax", "bzpopmin", "xread", "xreadgroup"};
  return names.contains(lower_name);
}

bool answers_shortly(std::string_view lower_name) {
  static const std::unordered_set<std::string_view> names{
      "append", "decr", "decrby", "del", "expire", "expireat", "geoadd", "hdel", "hincrby", "hincrbyfloat", "hmset",
      "hset", "hsetnx", "incr", "incrby", "incrbyfloat", "linsert", "lpush", "lpushx", "lrem", "lset", "ltrim", "mset",
      "msetnx", "persist", "pexpire", "pexpireat", "pfadd", "psetex", "publish", "rpush", "rpushx", "sadd", "set",
      "setbit", "setex", "setnx", "setrange", "smove", "srem", "unlink", "xack", "xadd", "xdel", "xtrim", "zadd",
      "zincrby", "zrem",
      // reads
      "exists", "expiretime", "geodist", "getbit", "hexists", "hlen", "hstrlen", "llen", "pexpiretime", "pttl", "scard",
      "sismember", "strlen", "ttl", "type", "xlen", "zcard", "zrank", "zrevrank", "zscore"};
  return names.contains(lower_name);
}

// NOLINTNEXTLINE(readability-function-size): a list
script_answer answer_in_script(std::string_view lower_name) {
  using enum script_answer;
  static const std::unordered_map<std::string_view, script_answer> others{
      {"bitfield", untyped}, {"hgetdel", untyped},    {"hgetex", untyped},    {"sort", untyped},
      {"xclaim", untyped},   {"xautoclaim", untyped}, {"xreadgroup", streams}};
  static const std::unordered_set<std::string_view> names{"append",
                                                          "bitop",
                                                          "copy",
                                                          "decr",
                                                          "decrby",
                                                          "del",
                                                          "expire",
                                                          "expireat",
                                                          "geoadd",
                                                          "georadius",
                                                          "geosearchstore",
                                                          "georadiusbymember",
                                                          "getdel",
                                                          "getex",
                                                          "getset",
                                                          "hdel",
                                                          "hexpire",
                                                          "hexpireat",
                                                          "hincrby",
                                                          "hincrbyfloat",
                                                          "hmset",
                                                          "hpersist",
                                                          "hpexpire",
                                                          "hpexpireat",
                                                          "hset",
                                                          "hsetex",
                                                          "hsetnx",
                                                          "incr",
                                                          "incrby",
                                                          "incrbyfloat",
                                                          "linsert",
                                                          "lmove",
                                                          "lmpop",
                                                          "lpop",
                                                          "lpush",
                                                          "lpushx",
                                                          "lrem",
                                                          "lset",
                                                          "ltrim",
                                                          "move",
                                                          "mset",
                                                          "msetnx",
                                                          "persist",
                                                          "pexpire",
                                                          "pexpireat",
                                                          "pfadd",
                                                          "pfmerge",
                                                          "psetex",
                                                          "publish",
                                                          "rename",
                                                          "renamenx",
                                                          "restore",
                                                          "rpop",
                                                          "rpoplpush",
                                                          "rpush",
                                                          "rpushx",
                                                          "sadd",
                                                          "sdiffstore",
                                                          "set",
                                                          "setbit",
                                                          "setex",
                                                          "setnx",
                                                          "setrange",
                                                          "sinterstore",
                                                          "smove",
                                                          "spop",
                                                          "spublish",
                                                          "srem",
                                                          "sunionstore",
                                                          "unlink",
                                                          "xack",
                                                          "xackdel",
                                                          "xadd",
                                                          "xdel",
                                                          "xdelex",
                                                          "xgroup|create",
                                                          "xgroup|createconsumer",
                                                          "xgroup|delconsumer",
                                                          "xgroup|destroy",
                                                          "xgroup|setid",
                                                          "xsetid",
                                                          "xtrim",
                                                          "zadd",
                                                          "zdiffstore",
                                                          "zincrby",
                                                          "zinterstore",
                                                          "zmpop",
                                                          "zpopmax",
                                                          "zpopmin",
                                                          "zrangestore",
                                                          "zrem",
                                                          "zremrangebylex",
                                                          "zremrangebyrank",
                                                          "zremrangebyscore",
                                                          "zunionstore"};
  const auto found = others.find(lower_name);
  if (found != others.end()) return found->second;
  return names.contains(lower_name) ? typed : unknown;
}

bool stays_with_connection(std::string_view lower_name) {
  static const std::unordered_set<std::string_view> others{"wait", "waitaof", "readonly", "readwrite", "asking"};
  static const std::unordered_set<std::string_view> harmless{
      "client|getname", "client|getredir", "client|help",    "client|id",      "client|info",
      "client|list",    "client|reply",    "client|setinfo", "client|setname", "client|trackinginfo"};
  if (lower_name.starts_with("client|")) return !harmless.contains(lower_name);
  return others.contains(lower_name);
}

bool never_in_script(std::string_view lower_name) {
  // Those that block, and other scripts; of what the table has, all but what a batch may have.
  static const std::unordered_set<std::string_view> others{
      "blpop",      "brpop", "blmove",  "brpoplpush", "blmpop",     "bzpopmin", "bzpopmax", "bzmpop",       "xread",
      "xreadgroup", "eval",  "eval_ro", "evalsha",    "evalsha_ro", "fcall",    "fcall_ro", "function|load"};
  if (others.contains(lower_name)) return true;
  const auto role = role_by_name(lower_name);
  return role && *role != read && *role != write;
}

std::vector<std::string_view> refused_commands() {
  std::vector<std::string_view> out;
  for (const auto& [name, role] : roles)
    if (role == refused) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

bool is_replication(std::string_view lower_name) { return lower_name == "sync" || lower_name == "psync"; }

std::vector<std::string_view> subcommands_by_name() {
  std::vector<std::string_view> out;
  for (const auto& [name, role] : roles)
    if (name.find('|') != std::string_view::npos) out.push_back(name);
  return out;
}

std::vector<std::string_view> critical_commands() {
  std::vector<std::string_view> out;
  for (const auto& [name, role] : roles)
    if ((role != read && role != other && !may_block(role) && role != fence) || stays_with_connection(name))
      out.push_back(name.substr(0, name.find('|')));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace fencegate::backend
