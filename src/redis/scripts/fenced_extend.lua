-- include: guard.lua
-- fenced_extend: extends one hold of a quorum's lock, and stores its token on this server, too.
--
-- KEYS 1 lock hash, 2 token counter
-- ARGV 1 not-after, 2 owner, 3 lease ms, 4 the smallest token to store; -1: draw a new one
-- Reply {1, stored, now} held | {0, 0, now} gone | {-1, 0, now} not a lock | {-3, 0, now} too late
--
-- Only the holder stores a token; a later owner draws a larger one. As in renew, a lease is raised,
-- never shortened.
-- luacheck: read globals now_us now too_late
if too_late then return {-3, 0, now} end

local lock, counter, owner, lease_ms = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
local wanted = tonumber(ARGV[4])
if tonumber(lease_ms) < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end
local held = redis.pcall('hexists', lock, owner)
if held == 0 then return {0, 0, now} end
if held ~= 1 then return string.find(held.err, 'WRONGTYPE', 1, true) and {-1, 0, now} or held end

local last = redis.call('get', counter) or '0'
if not string.find(last, '^%d+$') then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
local stored = tonumber(last)
if wanted < 0 then wanted = math.max(stored + 1, now_us) end
if math.max(stored, wanted) > 9007199254740991 then
  return redis.error_reply('ERR the token counter has reached its end')
end
if stored < wanted then
  stored = redis.call('incrby', counter, string.format('%.0f', wanted - stored))
end
local ttl_ms = redis.call('pttl', lock)
if ttl_ms >= 0 and ttl_ms < tonumber(lease_ms) then redis.call('pexpire', lock, lease_ms) end
return {1, stored, now}
