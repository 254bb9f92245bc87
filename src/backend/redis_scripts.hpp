// The Lua scripts that the Redis gate runs, always by EVAL with their text (an EVALSHA can answer NOSCRIPT). They compare
// bytes only: Lua's numbers are doubles and end at 2^53, so what a mark means for a token is judged in C++.
#pragma once

#include <string_view>

namespace fencegate::backend {

// The epoch: a random text written once into an empty Redis. If it is gone or another one, marks were lost.
inline constexpr std::string_view epoch_key = "fencegate:epoch";

// Compare-and-set of a mark. KEYS: mark, epoch. ARGV: the expected mark ("" = none), the new mark ("" = only look at it),
// the expected epoch ("" = any). Answers {'set'}, {'is', mark}, {'none'} or {'epoch'}; anything else changed nothing.
inline constexpr std::string_view compare_and_set_mark = R"lua(
if ARGV[3] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[3] then return {'epoch'} end
local is = redis.call('GET', KEYS[1])
if is == false then
  if ARGV[1] ~= '' or ARGV[2] == '' then return {'none'} end
elseif ARGV[1] == '' or is ~= ARGV[1] or ARGV[2] == '' then
  return {'is', is}
end
if is ~= ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2])
elseif redis.call('PTTL', KEYS[1]) >= 0 then
  redis.call('PERSIST', KEYS[1])
end
return {'set'}
)lua";

// One command behind its check. No KEYS: Redis asks for write access to those, and clients need none to the marks. ARGV:
// protocol version, database of the client, n, n keys (marks, then the epoch), their n expected values, then the
// command. A mark that differs answers the error "FENCEGATEMARK"; the command did not run then. An error of the command
// itself is "FENCEGATERAN " and its text; any other error is the script's, and the command did not run.
inline constexpr std::string_view checked_command = R"lua(
if ARGV[2] ~= '0' then redis.call('SELECT', 0) end
local n = tonumber(ARGV[3])
for i = 4, 3 + n do
  if redis.call('GET', ARGV[i]) ~= ARGV[i + n] then return redis.error_reply('FENCEGATEMARK the mark moved') end
end
if ARGV[2] ~= '0' then redis.call('SELECT', ARGV[2]) end
if ARGV[1] == '3' then redis.setresp(3) end
local r = redis.pcall(unpack(ARGV, 4 + 2 * n))
if type(r) == 'table' and r.err then return redis.error_reply('FENCEGATERAN ' .. r.err) end
return r
)lua";

// equal_token: reject. Raises marks, all or none, each only from below its token, and runs one command behind that, if
// there is one. KEYS: marks, then the epoch. ARGV: the expected epoch, n tokens, n least marks that the tokens may follow on,
// then the command. Digits are compared as bytes. "FENCEGATEMARK": nothing was raised and nothing ran. "FENCEGATERAN " and an
// error of the command: nothing was raised either. Any other error is the script's, and the command did not run.
inline constexpr std::string_view spending_command = R"lua(
local n = #KEYS - 1
if redis.call('GET', KEYS[n + 1]) ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local function below(a, b)
  if #a ~= #b then return #a < #b end
  for i = 1, #a do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end
local was = {}
for i = 1, n do
  local token, least, mark = ARGV[1 + i], ARGV[1 + n + i], redis.call('GET', KEYS[i])
  local canonical = mark and (mark == '0' or string.find(mark, '^[1-9][0-9]*$'))
  if mark and not (canonical and below(mark, token) and not below(mark, least)) then
    return redis.error_reply('FENCEGATEMARK it is not below the token')
  end
  was[i] = mark
end
local function undo(last)
  for i = 1, last do
    if was[i] then redis.call('SET', KEYS[i], was[i]) else redis.call('DEL', KEYS[i]) end
  end
end
for i = 1, n do
  local set = redis.pcall('SET', KEYS[i], ARGV[1 + i])
  if set.err then undo(i - 1) return set end
end
if #ARGV == 1 + 2 * n then return redis.status_reply('OK') end
local r = redis.pcall(unpack(ARGV, 2 + 2 * n))
if type(r) == 'table' and r.err then undo(n) return redis.error_reply('FENCEGATERAN ' .. r.err) end
return r
)lua";

}  // namespace fencegate::backend
