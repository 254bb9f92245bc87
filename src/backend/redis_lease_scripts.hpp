// The Lua scripts of leases whose issuer is a Redis; src/backend/schema/5_leases.sql is the same in PostgreSQL.
//
// A lease is the hash fencegate:lease:{R}, which does not expire. Its token is a fencing token: above every earlier one of
// the resource, above the mark, and above the floor that the caller read elsewhere. Tokens are digits, which Redis counts:
// Lua's numbers end at 2^53. Times are microseconds of this server's clock (a millisecond that is rounded down belongs to two
// holders) and never leave it: what is answered is a duration. What is kept of a grant id is its SHA-1, by which none can be
// used.
//
// All scripts have these in front: KEYS: epoch, issuer_key. ARGV: the expected epoch, the expected issuer's id ("" = any).
// "FENCEGATEMARK …": the epoch is another, the server is a replica, or something is no number. "FENCEGATELOST …": the issuer
// is another one. An error has granted, renewed and released nothing, or it is not known.
#pragma once

#include "backend/redis_scripts.hpp"

#include <string>
#include <string_view>

namespace fencegate::backend {

// Who grants here: a random id, written at the first use; behind it the incarnation of that time.
inline constexpr std::string_view issuer_key = "fencegate:issuer";

// A hash whose fields are the resources of all leases that were ever granted.
inline constexpr std::string_view leases_key = "fencegate:leases";

// In front of all of them. `me`, the incarnation, changes when this server may have lost grants that it had answered: it was
// started anew, follows or followed another, or its marks were lost. It is read here, since a server that goes back to an
// older copy may keep its connections.
inline const std::string lease_lead = std::string(compare_digits) + R"lua(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCEGATEMARK another epoch') end
local replication = redis.call('INFO', 'replication')
if string.match(replication, '\nrole:(%S+)') ~= 'master' then return redis.error_reply('FENCEGATEMARK it is a replica') end
local me = string.match(redis.call('INFO', 'server'), '\nrun_id:(%S+)') .. ':'
           .. string.match(replication, '\nmaster_replid:(%S+)') .. ':' .. string.gsub(ARGV[1], '~[0-9]+$', '')
local issuer, born = string.match(redis.call('GET', KEYS[2]) or '', '^(%x+) ?(.*)$')
)lua";

// Answers the issuer's id. ARGV[2]: a new one, for a server that has none yet.
inline const std::string name_issuer = lease_lead + R"lua(
if issuer then return issuer end
if redis.call('GET', KEYS[2]) then return redis.error_reply('FENCEGATEMARK ' .. KEYS[2] .. ' is none that fencegate wrote') end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. me)
return ARGV[2]
)lua";

// In front of the scripts about leases: `row` reads one; `mark_at` a mark; `free_at` is when a lease can be granted to
// another, unless it is renewed: a frozen one in a century. A row that is not there may have been forgotten by a later incarnation than the issuer's first;
// one of another issuer is of another incarnation, too.
inline const std::string lease_rows = lease_lead + R"lua(
if ARGV[2] ~= '' and issuer ~= ARGV[2] then return redis.error_reply('FENCEGATELOST the issuer is another one') end
me = (issuer or '') .. ':' .. me
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function digits(text)
  if text == '0' or string.find(text, '^[1-9][0-9]*$') then return text end
  error('FENCEGATEMARK it is no number')
end
local function mark_at(key) return digits(redis.call('GET', key) or '0') end
local function row(key)
  local v = redis.call('HMGET', key, 'token', 'grant', 'until', 'not_before', 'ttl', 'at_least', 'delay', 'past', 'stores',
                       'server', 'holder', 'granted', 'frozen')
  local l = {token = digits(v[1] or '0')}
  if l.token == '0' then v = {'0', '', '0', '0', '0', '0', '0', '', '', (issuer or '') .. ':' .. (born or ''), '', '0'} end
  l.grant, l.till, l.not_before, l.ttl, l.at_least, l.delay = v[2], v[3] + 0, v[4] + 0, v[5] + 0, v[6] + 0, v[7] + 0
  l.past, l.stores, l.server, l.holder, l.granted = v[8], v[9], v[10], v[11], v[12] + 0
  l.frozen = v[13] == '1'
  return l
end
local function free_at(l)
  if l.frozen then return now + 3155760000000000 end
  if l.till == 0 then return l.not_before end
  return math.max(l.till + l.delay * 1000, l.not_before)
end
local function shown(number) return string.format('%.0f', number) end
local function left(l) return shown(math.max(math.ceil((free_at(l) - now) / 1000), 0)) end
local function has(words, word) return string.find(' ' .. words .. ' ', ' ' .. word .. ' ', 1, true) ~= nil end
)lua";

// Grants all resources or none. KEYS: leases_key, n leases, n marks. ARGV: the grant's id, its holder, then in ms its ttl,
// at_least and lock_delay; the stride; the highest token above which none is granted; the ids of all stores that the caller
// will seal, with blanks between; "force": an operator takes it from its holder, unless it is frozen; "freeze": and nobody has
// it until lease_thaw_script; n floors.
//
// Answers {"granted", token…}; or, which granted nothing, {"held", i, holder, ms left}; {"over", i}: the time of this grant
// id has passed, or it was released; {"uncovered", i, store}: a holder sealed a store that is not among those; {"high", i,
// token}: there is no token above it. The same id asked again keeps its token while that is above the floor, and gets another
// one otherwise. Where the clock went back, nobody holds for longer than what was granted from now on.
//
// What Redis refuses (memory, rights to one of the keys, a type), it refuses of the writes that are tried first, each of
// which changes nothing that counts.
inline const std::string lease_grant_script = lease_rows + R"lua(
local n = (#KEYS - 3) / 2
local grant, holder, ttl, at_least, delay = redis.sha1hex(ARGV[3]), ARGV[4], ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0
local stride, last, stores, freeze = ARGV[8], ARGV[9], ARGV[10], ARGV[11] == 'freeze'
local force = freeze or ARGV[11] == 'force'
local rows, over, held, uncovered, high = {}, nil, nil, nil, nil
for i = 1, n do
  local l, floor, mark = row(KEYS[3 + i]), digits(ARGV[11 + i]), mark_at(KEYS[3 + n + i])
  local till, not_before = math.min(l.till, now + l.ttl * 1000), math.min(l.not_before, now + l.at_least * 1000)
  if till < l.till or not_before < l.not_before then
    redis.call('HSET', KEYS[3 + i], 'until', shown(till), 'not_before', shown(not_before))
  end
  l.till, l.not_before = till, not_before
  if l.token ~= '0' and (has(l.past, grant) or l.grant == grant and l.till <= now) then over = {'over', shown(i)} end
  local taken = l.frozen and not freeze or not force
  if taken and l.grant ~= grant and free_at(l) > now and (not held or free_at(l) > free_at(rows[held])) then held = i end
  for store in string.gmatch(l.stores, '%S+') do
    if not has(stores, store) then uncovered = {'uncovered', shown(i), store} end
  end
  l.same = l.grant == grant and l.server == me and below(floor, l.token) and not below(l.token, mark)
  l.highest = l.token
  if below(l.highest, mark) then l.highest = mark end
  if below(l.highest, floor) then l.highest = floor end
  if below(last, l.highest) then high = {'high', shown(i), l.highest} end
  rows[i] = l
end
if over then return over end
if held then return {'held', shown(held), rows[held].holder, left(rows[held])} end
if uncovered or high then return uncovered or high end
for i = 1, n do
  redis.call('HSET', KEYS[3 + i], 'token', rows[i].token)
  redis.call('HINCRBY', KEYS[3 + i], 'token', 0)
  redis.call('HSET', KEYS[3], string.match(KEYS[3 + i], '{(.*)}'), '')
end
local out = {'granted'}
for i = 1, n do
  local l = rows[i]
  if l.token ~= '0' and l.grant ~= grant then l.past = string.sub(l.grant .. ' ' .. l.past, 1, 64 * 41 - 1) end
  redis.call('HSET', KEYS[3 + i], 'token', l.same and l.token or l.highest, 'grant', grant, 'holder', holder, 'ttl', shown(ttl),
             'at_least', shown(at_least), 'delay', shown(delay), 'past', l.past, 'stores', stores, 'server', me,
             'granted', shown(now), 'until', shown(now + ttl * 1000), 'not_before', shown(now + at_least * 1000),
             'frozen', freeze and '1' or '0')
  if not l.same then redis.call('HINCRBY', KEYS[3 + i], 'token', l.server == me and '1' or stride) end
  out[i + 1] = redis.call('HMGET', KEYS[3 + i], 'token')[1]
end
return out
)lua";

// Renews what these terms hold. KEYS: n leases, n marks. ARGV: n tokens, n grant ids. Answers n times the TTL in
// milliseconds, or "0": it was lost. While nobody took or released the lease, an expired term revives. A term whose token is below the mark was superseded.
inline const std::string lease_renew_script = lease_rows + R"lua(
local n, out = (#KEYS - 2) / 2, {}
for i = 1, n do
  local l, mark = row(KEYS[2 + i]), mark_at(KEYS[2 + n + i])
  local is = l.token == ARGV[2 + i] and l.grant == redis.sha1hex(ARGV[2 + n + i]) and l.till > 0 and not below(l.token, mark)
  if is then redis.call('HSET', KEYS[2 + i], 'until', shown(now + l.ttl * 1000)) end
  out[i] = is and shown(l.ttl) or '0'
end
return out
)lua";

// Ends these terms. KEYS: n leases. ARGV: "unused": nobody acted on them, so that nobody has to wait for their at_least; or "";
// n tokens, n grant ids. Answers n times "1" or "0". The token stays: it is below the next one.
inline const std::string lease_release_script = lease_rows + R"lua(
local n, out = #KEYS - 2, {}
for i = 1, n do
  local l = row(KEYS[2 + i])
  local is = l.token == ARGV[3 + i] and l.grant == redis.sha1hex(ARGV[3 + n + i]) and l.till > 0
  if is then
    redis.call('HSET', KEYS[2 + i], 'until', '0', 'frozen', '0',
               'not_before', ARGV[3] == 'unused' and '0' or shown(l.not_before))
  end
  out[i] = is and '1' or '0'
end
return out
)lua";

// Ends what an operator froze. KEYS: the lease. Answers "1"; "0": it is not frozen.
inline const std::string lease_thaw_script = lease_rows + R"lua(
if not row(KEYS[3]).frozen then return '0' end
redis.call('HSET', KEYS[3], 'until', '0', 'not_before', '0', 'frozen', '0')
return '1'
)lua";

// A store that former holders of the resource sealed, and that is no more. KEYS: the lease. ARGV: the store's id. Answers "1";
// "0": none of them sealed it.
inline const std::string lease_forget_script = lease_rows + R"lua(
local l, kept = row(KEYS[3]), {}
if not has(l.stores, ARGV[3]) then return '0' end
for store in string.gmatch(l.stores, '%S+') do
  if store ~= ARGV[3] then kept[#kept + 1] = store end
end
redis.call('HSET', KEYS[3], 'stores', table.concat(kept, ' '))
return '1'
)lua";

// Gives a mark to another issuer, when it is that of ARGV[2]: from now on it rises by seals of ARGV[3] only. The grant beside it
// is void then. KEYS: the record of the grant. Answers whose mark it is afterwards; "": nobody's.
inline const std::string move_issuer_script = lease_lead + R"lua(
local record = redis.call('GET', KEYS[3])
if not record then return '' end
local owner = string.match(record, '^%S+ (%S+) %S+$')
if not owner then return redis.error_reply('FENCEGATEMARK ' .. KEYS[3] .. ' is none that fencegate wrote') end
if owner == ARGV[2] and owner ~= ARGV[3] then
  redis.call('SET', KEYS[3], '0 ' .. ARGV[3] .. ' -')
  owner = ARGV[3]
end
return owner
)lua";

// In front of the scripts about those who wait for a lease: the text fencegate:waiters:{R}, which expires, of one line for each:
// the SHA-1 of the grant's id, then in microseconds when he is forgotten and since when he waits, and his name. `alive`: those
// who still wait but `except`. For people alone: nothing depends on it.
inline const std::string lease_waiters = lease_rows + R"lua(
local function alive(key, except)
  local out = {}
  for line, grant, till in string.gmatch(redis.call('GET', key) or '', '((%x+) (%d+) [^\n]*)\n') do
    if grant ~= except and till + 0 > now and till + 0 <= now + 60000000 then out[#out + 1] = line end
  end
  return out
end
)lua";

// Notes who waits for a lease. KEYS: the lease, its waiters. ARGV: the grant's id, the holder's name, for how many ms; 0: he waits no
// more. For one resource it notes 64.
inline const std::string lease_wait_script = lease_waiters + R"lua(
local grant, stays = redis.sha1hex(ARGV[3]), math.min(ARGV[5] + 0, 60000)
local since = string.match(redis.call('GET', KEYS[4]) or '', grant .. ' %d+ (%d+)') or shown(now)
local all = alive(KEYS[4], grant)
if stays > 0 and #all < 64 and row(KEYS[3]).token ~= '0' then
  all[#all + 1] = grant .. ' ' .. shown(now + stays * 1000) .. ' ' .. since .. ' ' .. string.gsub(ARGV[4], '%c', '_')
end
if #all == 0 then return redis.call('DEL', KEYS[4]) end
redis.call('SET', KEYS[4], table.concat(all, '\n') .. '\n', 'PX', '60000')
return 1
)lua";

// The resources of all leases. KEYS: leases_key.
inline const std::string lease_names_script = lease_rows + "return redis.call('HKEYS', KEYS[3])";

// Leases as they are. KEYS: n leases, n marks, n texts of waiters. Answers seven texts for each: token, mark ("" = none), holder,
// when it was granted, ms until another may have it, "1" where it is frozen; a line for each who waits: since when, and his name.
inline const std::string lease_list_script = lease_waiters + R"lua(
local n, out = (#KEYS - 2) / 3, {}
for i = 1, n do
  local l = row(KEYS[2 + i])
  for _, one in ipairs({l.token, redis.call('GET', KEYS[2 + n + i]) or '', l.holder, shown(l.granted), left(l),
                         l.frozen and '1' or '0'}) do
    out[#out + 1] = one
  end
  local waiters = {}
  for k, line in ipairs(alive(KEYS[2 + 2 * n + i], l.grant)) do waiters[k] = string.match(line, '^%x+ %d+ (.*)$') .. '\n' end
  out[#out + 1] = table.concat(waiters)
end
return out
)lua";

}  // namespace fencegate::backend
