-- include: guard.lua
-- string_lease: sets the lease of one string lock, or adds to it.
--
-- KEYS 1 lock   ARGV 1 not-after, 2 lease ms, 3 its token, 4 'set' or 'add'
-- Reply {1, the lease now, now} held | {0, 0, now} gone | {-1, 0, now} not a string
--       {-3, 0, now} too late
--
-- Sent once, as lease is. A key that somebody made permanent has nothing to add to, and stays so.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local lock, lease_ms = KEYS[1], tonumber(ARGV[2])
if lease_ms < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end
local there = redis.pcall('get', lock)
if type(there) == 'table' then
  return string.find(there.err, 'WRONGTYPE', 1, true) and {-1, 0, now} or there
end
if there ~= ARGV[3] then return {0, 0, now} end

if ARGV[4] == 'add' then
  local ttl_ms = redis.call('pttl', lock)
  if ttl_ms < 0 then return {1, lease_ms, now} end
  lease_ms = lease_ms + ttl_ms
end
redis.call('pexpire', lock, string.format('%.0f', lease_ms))
return {1, lease_ms, now}
