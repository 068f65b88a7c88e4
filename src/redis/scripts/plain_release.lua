-- include: guard.lua
-- plain_release: releases one level of the lock; the last one frees it and notifies the waiters.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 owner, 3 lease ms for what remains,
--                         4 count held (>= 1), 5 'publish' or 'spublish', 6 channel;
--                         all from 3 on left out: 1, publish, the channel of a name without braces
-- Reply now in us, whose last three digits are how many subscribers got the message, 999 at most:
--       released
--       {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free or 1 another's, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. An acquire of unknown outcome from count c is undone by
-- releasing c + 1.
-- luacheck: read globals call now now_us too_late BRIEF_MIN_US COUNT
if too_late then return {-3, 0, now} end

local lock, owner, remaining = KEYS[1], ARGV[2], 0
local publish, channel = 'publish', ARGV[6]
if channel then
  remaining, publish = ARGV[4] - 1, ARGV[5]
  if remaining < 0 then
    return redis.error_reply('ERR the count must be at least 1')
  end
else
  channel = 'redisson_lock__channel:{' .. lock .. '}'
end

local fields = call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
if not fields[1] then return {-1, call('exists', lock), now} end
local there = fields[1] == '1' and 1 or string.find(fields[1], COUNT) and tonumber(fields[1])
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  local ttl_ms, lease_ms = call('pttl', lock), tonumber(ARGV[3])
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- PEXPIRE comes before the count, even if the expiry stays the same: a server that is out of
  -- memory lets a script finish once it has written, and never refuses PEXPIRE.
  if ttl_ms >= 0 then
    call('pexpire', lock, math.max(ttl_ms, lease_ms))
  end
  if there ~= remaining then call('hset', lock, owner, remaining) end
  return {0, remaining, now}
end

call('del', lock)
local listeners = redis.pcall(publish, channel, '0')
if listeners ~= 0 then
  if type(listeners) == 'table' then return {2, 0, now} end
  if listeners > 999 then listeners = 999 end
end
if now_us >= BRIEF_MIN_US then return now_us - now_us % 1000 + listeners end
return {1, 0, now}
