// The Lua scripts that the Redis gate runs, always by EVAL with their text (an EVALSHA can answer NOSCRIPT). They compare
// bytes only: Lua's numbers are doubles and end at 2^53, so what a mark means for a token is judged in C++.
#pragma once

#include <string>
#include <string_view>

namespace fencegate::backend {

// The epoch: a random text written once into an empty Redis. If it is gone or another one, marks were lost.
inline constexpr std::string_view epoch_key = "fencegate:epoch";

// Stands in for the epoch while marks that were lost with it are put back: who puts them back shares this text, and when
// it is gone, all were lost again.
inline constexpr std::string_view healing_key = "fencegate:healing";

// Meanwhile whoever is at work writes a new text here, again and again: when it stays the same, nobody is. It does not
// expire: Redis's clock goes on while Redis stands still, and nobody can say anything.
inline constexpr std::string_view healing_busy_key = "fencegate:healing:busy";

// What operators have lowered (backend/lowered_marks.hpp), the newest first: lines of number, resource, from, to, who and why,
// with tabs between. Of each resource the last one. A number is higher than those before it: microseconds since 1970, or more,
// so that none is given twice, not even where Redis has lost some. In front of them stand the newest that was forgotten, and the
// epoch without its number: under another one they say nothing.
inline constexpr std::string_view lowered_key = "fencegate:lowered";

// What a client's link says to be followed for WAIT and WAITAOF: a channel that nobody hears, and a key that goes at once.
inline constexpr std::string_view offset_name = "fencegate:offset";

// A mark that is not to be changed is touched by GETEX … PERSIST. Redis takes that for a write, and refuses it where it
// would refuse a raise (a replica, NOREPLICAS, MISCONF, missing rights); and a mark that was about to expire stays. It
// comes behind what Redis may refuse for want of memory: once a script has written, Redis does not look at that any more.

// In front of a script: what it writes, Redis takes although it is out of memory (Redis 7; older ones do not read it).
inline constexpr std::string_view allow_oom = "#!lua flags=allow-oom\n";

// Compare-and-set of a mark. KEYS: mark, epoch (or healing_key), record of its grant. ARGV: the expected mark ("" = none),
// the new mark ("" = only look at it), the expected epoch, "raise" or "heal" (puts back what was seen before). Answers
// {'set'}, {'is', mark}, {'none'}, {'epoch'}, or {'leased', mark or ''}: only seals raise it; anything but the first changed
// nothing.
inline constexpr std::string_view compare_and_set_mark = R"lua(
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return {'epoch'} end
local is = redis.call('GET', KEYS[1])
if is == false then
  if ARGV[1] ~= '' or ARGV[2] == '' then return {'none'} end
elseif ARGV[1] == '' or is ~= ARGV[1] or ARGV[2] == '' then
  return {'is', is}
end
if is ~= ARGV[2] then
  if ARGV[4] ~= 'heal' and redis.call('GET', KEYS[3]) then return {'leased', is or ''} end
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('GETEX', KEYS[1], 'PERSIST')
end
return {'set'}
)lua";

// In front of the scripts that compare marks: canonical digits, as numbers.
inline constexpr std::string_view compare_digits = R"lua(
local function below(a, b)
  if #a ~= #b then return #a < #b end
  for i = 1, #a do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end
)lua";

// In front of the scripts that set a mark so that running gates forget a higher one. KEYS: epoch, mark, record of its grant,
// lowered_key. false: Lua counts no further, and nothing was changed.
inline constexpr std::string_view lower_for_all = R"lua(
local function lower(epoch, from, to, now, who, why)
  local base, last = string.match(epoch, '^(.*)~([1-9][0-9]*)$')
  base, last = base or epoch, last or '0'
  if tonumber(last) >= 2^53 - 1 then return false end
  local number = string.format('%.0f', math.max(tonumber(last) + 1, tonumber(now)))
  local resource = string.match(KEYS[2], '^fencegate:mark:{(.*)}$')
  local forgotten, of_base, rest = string.match(redis.call('GET', KEYS[4]) or '', '^([0-9]+)\t([^\n]*)\n(.*)$')
  if of_base ~= base then forgotten, rest = last, '' end
  local lines = {table.concat({number, resource, from, to, who, why}, '\t')}
  for line in string.gmatch(rest, '([^\n]+)\n') do
    local at, of = string.match(line, '^([^\t]*)\t([^\t]*)\t')
    if of ~= resource and #lines < 1000 then
      lines[#lines + 1] = line
    elseif of ~= resource and tonumber(at) > tonumber(forgotten) then
      forgotten = at
    end
  end
  redis.call('SET', KEYS[4], forgotten .. '\t' .. base .. '\n' .. table.concat(lines, '\n') .. '\n')
  redis.call('SET', KEYS[2], to)
  redis.call('SET', KEYS[1], base .. '~' .. number)
  return true
end
)lua";

// An operator lowers a mark. KEYS: epoch, mark, record of its grant, lowered_key. ARGV: the expected epoch, the expected mark,
// the new one, "force" or "", the time in microseconds, who, why, the epoch under which the expected mark was seen. Answers
// {'lowered'}, {'is', mark or ''}: another one, or seen before another lowering, {'leased'}: only seals raise it, {'floor'}:
// without force, and Redis does not keep what a mark was before, or {'last'}: Lua counts no further; anything but the first
// changed nothing.
inline const std::string lower_mark = std::string(lower_for_all) + R"lua(
local epoch = redis.call('GET', KEYS[1])
if not epoch or epoch ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local is = redis.call('GET', KEYS[2])
if is ~= ARGV[2] or epoch ~= ARGV[8] then return {'is', is or ''} end
if redis.call('GET', KEYS[3]) then return {'leased'} end
if ARGV[4] ~= 'force' then return {'floor'} end
if not lower(epoch, is, ARGV[3], ARGV[5], ARGV[6], ARGV[7]) then return {'last'} end
return {'lowered'}
)lua";

// An operator replaces a mark that is no number. KEYS: as of lower_mark. ARGV: the expected epoch, the new mark, "lower": running
// gates forget a higher one, or "", the time in microseconds, who, why. Answers {'replaced'}, {'is', mark or ''}: it is a number or
// there is none, {'below', token}: it was sealed with that one, or {'last'}: Lua counts no further; anything but the first changed
// nothing.
inline const std::string replace_mark = std::string(compare_digits) + std::string(lower_for_all) + R"lua(
local epoch = redis.call('GET', KEYS[1])
if not epoch or epoch ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local highest = '9223372036854775807'
local is = redis.pcall('GET', KEYS[2])
if type(is) == 'table' and not string.find(is.err or '', 'WRONGTYPE', 1, true) then return is end
if is == false then return {'is', ''} end
local number = type(is) == 'string' and (is == '0' or string.find(is, '^[1-9][0-9]*$'))
if number and not below(highest, is) then return {'is', is} end
local sealed = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) ')
if sealed and below(ARGV[2], sealed) then return {'below', sealed} end
if ARGV[3] == 'lower' then
  if not lower(epoch, highest, ARGV[2], ARGV[4], ARGV[5], ARGV[6]) then return {'last'} end
else
  redis.call('SET', KEYS[2], ARGV[2])
end
return {'replaced'}
)lua";

// Seals: raises the marks to the tokens of one grant, all or none, and writes beside each whose it is. A mark that has an
// issuer rises by nothing else. KEYS: n marks, n records of grants, the epoch. ARGV: the expected epoch, the issuer's id, the
// grant's id (a secret: its SHA-1 is kept), n tokens, n marks that were seen before ("" = none).
//
// Answers n times 1 or 0, whether it was lower before. "FENCEGATEMARK": the epoch is another, a mark has gone back, or is no
// number. "FENCEGATESEAL i why mark": the i-th is above its token (stale), is at it by another grant (equal), or belongs to
// leases of another issuer (issuer). Any error changed nothing: what Redis refuses, it refuses of the writes that are tried
// first, each of which does nothing.
inline const std::string seal_marks = std::string(compare_digits) + R"lua(
local n = (#KEYS - 1) / 2
if redis.call('GET', KEYS[#KEYS]) ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local issuer, grant = ARGV[2], redis.sha1hex(ARGV[3])
local records, moves = {}, {}
for i = 1, n do
  local mark, token, seen = redis.call('GET', KEYS[i]), ARGV[3 + i], ARGV[3 + n + i]
  local record = redis.call('GET', KEYS[n + i])
  if mark and mark ~= '0' and not string.find(mark, '^[1-9][0-9]*$') then
    return redis.error_reply('FENCEGATEMARK it is no number')
  end
  if seen ~= '' and (not mark or below(mark, seen)) then return redis.error_reply('FENCEGATEMARK it went back') end
  local function no(why) return redis.error_reply('FENCEGATESEAL ' .. i .. ' ' .. why .. ' ' .. (mark or '')) end
  records[i] = token .. ' ' .. issuer .. ' ' .. grant
  local owner = record and string.match(record, '^%S+ (%S+) %S+$')
  if record and owner ~= issuer then return no('issuer') end
  if mark and below(token, mark) then return no('stale') end
  if mark == token and record ~= records[i] then return no('equal') end
  moves[i] = mark ~= token
end
for i = 1, n do
  for _, key in ipairs({KEYS[i], KEYS[n + i]}) do
    redis.call('SET', key, '', redis.call('GET', key) and 'NX' or 'XX')
  end
end
local out = {}
for i = 1, n do
  if moves[i] then
    redis.call('SET', KEYS[i], ARGV[3 + i])
    redis.call('SET', KEYS[n + i], records[i])
  end
  out[i] = moves[i] and 1 or 0
end
return out
)lua";

// Who this Redis is, for those who seal in it: KEYS: store_key, epoch. ARGV: a new id, for one that has none yet, and the
// epoch. In another epoch it is given none: a Redis that lost its data is empty until its marks are back.
inline constexpr std::string_view store_key = "fencegate:store";
inline constexpr std::string_view name_store = R"lua(
local is = redis.call('GET', KEYS[1])
if is then return is end
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return redis.error_reply('FENCEGATEMARK another epoch') end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
)lua";

// Begins to put marks back, or joins who has begun, and says that somebody is at work. KEYS: epoch, healing_key,
// healing_busy_key. ARGV: new texts for the latter two. Answers the text of healing_key that is in force; nil: there is an
// epoch.
inline constexpr std::string_view join_healing = R"lua(
if (redis.call('GET', KEYS[1]) or '') ~= '' then return false end
redis.call('SET', KEYS[2], ARGV[1], 'NX')
redis.call('SET', KEYS[3], ARGV[2])
return redis.call('GET', KEYS[2])
)lua";

// Writes an epoch unless there is one. KEYS: epoch, healing_key, healing_busy_key. ARGV: the epoch, the expected texts of
// the latter two ("" = none). Answers the epoch that is there now; nil: another text, and nothing was changed.
inline constexpr std::string_view write_epoch = R"lua(
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] or (redis.call('GET', KEYS[3]) or '') ~= ARGV[3] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'NX')
redis.call('DEL', KEYS[2], KEYS[3])
return redis.call('GET', KEYS[1])
)lua";

// In front of the scripts that run a command. Lua's numbers end at 2^53: `far` answers for a larger integer, of a command
// that counts, which it reads again. "FENCEGATEINT " and its digits, or none where that could not be done, or of another
// command: it did run. nil: `r` is exact.
inline constexpr std::string_view exact_integers = R"lua(
local function far(r, command, key, field)
  if type(r) ~= 'number' or (r < 2^53 and r > -2^53) then return nil end
  local name, is = string.lower(command), nil
  if name == 'hincrby' then is = redis.pcall('HGET', key, field) end
  if name == 'incr' or name == 'incrby' or name == 'decr' or name == 'decrby' then is = redis.pcall('GET', key) end
  return redis.error_reply('FENCEGATEINT ' .. (type(is) == 'string' and is or ''))
end
)lua";

// One command behind its check. No KEYS: Redis asks for write access to those, and clients need none to the marks. ARGV:
// how to answer, database of the client, n, n keys (marks, then the epoch), their n expected values, then the command. A
// mark that differs answers the error "FENCEGATEMARK"; the command did not run then. An error of the command itself is
// "FENCEGATERAN " and its text; any other error is the script's, and the command did not run.
//
// How to answer: "untyped" converts the command's answer as RESP2 has it, nulls included; "typed" as RESP3 has it, but ends
// an array at its first null; "streams" makes XREADGROUP's RESP3 map of its RESP2 array. "first" is a command that takes
// from one key, and keys: it runs for one after the other, and the answer is the first of them that has something, and
// what that is.
inline const std::string checked_command = std::string(exact_integers) + R"lua(
if ARGV[2] ~= '0' then redis.call('SELECT', 0) end
local n = tonumber(ARGV[3])
for i = 4, 3 + n do
  if redis.call('GET', ARGV[i]) ~= ARGV[i + n] then return redis.error_reply('FENCEGATEMARK the mark moved') end
end
if ARGV[2] ~= '0' then redis.call('SELECT', ARGV[2]) end
if ARGV[1] == 'typed' or ARGV[1] == 'first' then redis.setresp(3) end
local at = 4 + 2 * n
if ARGV[1] == 'first' then
  for i = at + 1, #ARGV do
    local r = redis.pcall(ARGV[at], ARGV[i])
    if type(r) == 'string' then return {ARGV[i], r} end
    if type(r) == 'table' and r.err then return redis.error_reply('FENCEGATERAN ' .. r.err) end
    if type(r) == 'table' and #r > 0 then
      table.insert(r, 1, ARGV[i])
      return r
    end
  end
  return nil
end
local r = redis.pcall(unpack(ARGV, at))
if type(r) == 'table' and r.err then return redis.error_reply('FENCEGATERAN ' .. r.err) end
local is = far(r, ARGV[at], ARGV[at + 1], ARGV[at + 2])
if is then return is end
if ARGV[1] == 'streams' and r then
  local map = {}
  for _, one in ipairs(r) do map[one[1]] = one[2] end
  return {map = map}
end
return r
)lua";

// A server was put back to before some lowerings. KEYS: epoch. ARGV: what it is, and a new one in its place: should the server
// come forward again, that is no lowering. Answers what it is now.
inline constexpr std::string_view renew_epoch = R"lua(
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return redis.call('GET', KEYS[1])
)lua";

// An epoch was written by an operator. KEYS: epoch, healing_key, healing_busy_key. ARGV: what the first two are, for the
// latter two to be deleted.
inline constexpr std::string_view end_healing = R"lua(
if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('GET', KEYS[2]) == ARGV[2] then
  redis.call('DEL', KEYS[2], KEYS[3])
end
)lua";

// Raises marks, all or none, and runs one command behind that, if there is one. KEYS: n marks, n records of grants, then the
// epoch. ARGV: the
// expected epoch, "spend" (equal_token: reject: each mark is below its token) or "raise" (none is above it), n tokens,
// n least marks that they may follow on, n marks that were seen before ("" = none), then the command. Digits are
// compared as bytes.
//
// Answers what the marks were ("" = none), or what the command answered. "FENCEGATEMARK": nothing was raised and nothing
// ran. "FENCEGATELEASED i mark": the same, since only seals raise the i-th. "FENCEGATERAN " and an error of the command: nothing was raised either. "FENCEGATEINT " and its digits, or nothing:
// the command counted further than Lua's numbers go, which end at 2^53. Any other error is the script's, of a
// time when it had changed nothing: what Redis refuses (memory, rights to one of the keys, its disk, a type), it refuses
// of the writes that are tried first, each of which does nothing. DEL is what a mark is put back by that was not there.
inline const std::string raise_marks = std::string(exact_integers) + std::string(compare_digits) + R"lua(
local n = (#KEYS - 1) / 2
local spends, command = ARGV[2] == 'spend', 3 + 3 * n
if redis.call('GET', KEYS[#KEYS]) ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local was, moves = {}, {}
for i = 1, n do
  local mark, token, least, seen = redis.call('GET', KEYS[i]), ARGV[2 + i], ARGV[2 + n + i], ARGV[2 + 2 * n + i]
  local canonical = mark and (mark == '0' or string.find(mark, '^[1-9][0-9]*$'))
  if seen ~= '' and not (canonical and not below(mark, seen)) then
    return redis.error_reply('FENCEGATEMARK it went back')
  end
  local stays = mark == token and not spends
  if mark and not stays and not (canonical and below(mark, token) and not below(mark, least)) then
    return redis.error_reply('FENCEGATEMARK it is not below the token')
  end
  if not stays and redis.call('GET', KEYS[n + i]) then
    return redis.error_reply('FENCEGATELEASED ' .. i .. ' ' .. (mark or ''))
  end
  was[i] = mark or ''
  moves[i] = not stays
end
for i = 1, n do
  if moves[i] then redis.call('SET', KEYS[i], ARGV[2 + i], was[i] == '' and 'XX' or 'NX') end
  if was[i] == '' and #ARGV >= command then redis.call('DEL', KEYS[i]) end
end
for i = 1, n do
  if not moves[i] then redis.call('GETEX', KEYS[i], 'PERSIST') end
end
for i = 1, n do
  if moves[i] then redis.call('SET', KEYS[i], ARGV[2 + i]) end
end
if #ARGV < command then return was end
local ran, r = pcall(function() return redis.pcall(unpack(ARGV, command)) end)
local failed = not ran and tostring(r) or type(r) == 'table' and r.err
if failed then
  for i = 1, n do
    if was[i] == '' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], was[i]) end
  end
  return redis.error_reply('FENCEGATERAN ' .. failed)
end
return far(r, ARGV[command], ARGV[command + 1], ARGV[command + 2]) or r
)lua";

}  // namespace fencegate::backend
