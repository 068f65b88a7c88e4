-- include: guard.lua
-- lease: sets the lease of one hold, or adds to it. For locks that are one field of a hash.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 lease ms, 3 the owner's field in it, 4 'set' or 'add'
-- Reply {1, the lease now, now} held | {0, 0, now} gone | {-1, 0, now} not a lock
--       {-3, 0, now} too late
--
-- It is sent once: run twice it would add twice, and a copy that came after another extension would
-- take that back. A key without a TTL has nothing to add to, and stays without.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local lock, lease_ms = KEYS[1], tonumber(ARGV[2])
if lease_ms < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end
local held = redis.pcall('hexists', lock, ARGV[3])
if held == 0 then return {0, 0, now} end
if held ~= 1 then return string.find(held.err, 'WRONGTYPE', 1, true) and {-1, 0, now} or held end

if ARGV[4] == 'add' then
  local ttl_ms = redis.call('pttl', lock)
  if ttl_ms < 0 then return {1, lease_ms, now} end
  lease_ms = lease_ms + ttl_ms
end
redis.call('pexpire', lock, string.format('%.0f', lease_ms))
return {1, lease_ms, now}
