-- include: guard.lua
-- fenced_acquire: acquires or re-enters the lock, and draws a token larger than all before it.
--
-- KEYS 1 lock hash, 2 token counter
-- ARGV 1 not-after, 2 owner, 3 lease ms, 4 count the owner holds (0 = first)
-- Reply {1, count, token, now} held | {0, pttl, now} another holds | {-1, 0, now} our hold is gone
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, so running twice equals running once. Only the token is drawn anew: the hold
-- found here may be the residue of an earlier one, whose token is known outside.
-- luacheck: read globals now_us now too_late COUNT
if too_late then return {-3, 0, now} end

local lock, counter, owner, lease_ms = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
local count = tonumber(ARGV[4])
local wanted = count + 1
if tonumber(lease_ms) < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

-- Is it free, or ours?
local there = 0
local ttl_ms = redis.call('pttl', lock)
if ttl_ms == -2 then
  if count > 0 then return {-1, 0, now} end
else
  local fields = redis.call('hmget', lock, owner, 'mode')
  if fields[2] then
    return redis.error_reply('WRONGTYPE this is a read/write lock')
  end
  if not fields[1] then
    if count > 0 then return {-1, 0, now} end
    return {0, ttl_ms, now}
  end
  if not string.find(fields[1], COUNT) then
    return redis.error_reply('WRONGTYPE the hold count is not a number')
  end
  there = tonumber(fields[1])
  if count > 0 and there ~= count and there ~= wanted then return {-2, there, now} end
end

-- The token is written before the lock, so no failing counter leaves a lock without a token. It is
-- the time in microseconds, or the last token plus one if that is larger. No lock is acquired a
-- million times a second, so a counter that was deleted, or lost its last writes in a failover,
-- continues above its old value. It ends where Lua's (and JavaScript's) numbers become inexact.
local last = redis.call('get', counter) or '0'
if not string.find(last, '^%d+$') then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
elseif tonumber(last) >= 9007199254740991 then
  return redis.error_reply('ERR the token counter has reached its end')
end
local drawn = math.max(tonumber(last) + 1, now_us)
local token = redis.call('incrby', counter, string.format('%.0f', drawn - tonumber(last)))

-- As in plain_acquire: a re-entry or a resend raises the lease, a residue is taken over as if it
-- were new, and a lock without a lease would never expire.
if ttl_ms ~= -2 and (there == count or there == wanted) then
  if there == count then redis.call('hset', lock, owner, wanted) end
  if ttl_ms >= 0 and ttl_ms < tonumber(lease_ms) then redis.call('pexpire', lock, lease_ms) end
  return {1, wanted, token, now}
end
redis.call('hset', lock, owner, '1')
local expiry = redis.pcall('pexpire', lock, lease_ms)
if type(expiry) == 'table' then
  redis.call('del', lock)
  return expiry
end
return {1, 1, token, now}
