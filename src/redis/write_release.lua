-- include: readwrite_common.lua
-- write_release: give back one level of the writer; the last one frees the lock, or leaves it to
-- the writer's own reads.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 writer's field, 3 lease ms for what remains,
--                         4 count held (>= 1), 5 'publish' or 'spublish', 6 channel
-- Reply now in us: released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free or 1 another's, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. All waiters are told when the writer stops writing: also if
-- it goes on reading, as other readers may come in then.
-- luacheck: read globals now now_us too_late BRIEF_MIN_US
-- luacheck: read globals NOT_THIS_KIND first_hold_ms drop_dead_readers
if too_late then return {-3, 0, now} end

local lock, field = KEYS[1], ARGV[2]
local remaining = tonumber(ARGV[4]) - 1
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end

local fields = redis.call('hmget', lock, 'mode', field)
local mode = fields[1]
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply(NOT_THIS_KIND)
end
if mode ~= 'write' or not fields[2] then return {-1, mode and 1 or 0, now} end
local there = tonumber(fields[2])
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  local ttl_ms, lease_ms = redis.call('pttl', lock), tonumber(ARGV[3])
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- As in plain_release: PEXPIRE first, so that a server without memory lets the script finish.
  if ttl_ms >= 0 then
    redis.call('pexpire', lock, math.max(ttl_ms, lease_ms))
  end
  if there ~= remaining then redis.call('hset', lock, field, remaining) end
  return {0, remaining, now}
end

redis.call('hdel', lock, field)
if drop_dead_readers(lock, first_hold_ms) > 0 then
  redis.call('hset', lock, 'mode', 'read')
else
  redis.call('del', lock)
end
if type(redis.pcall(ARGV[5], ARGV[6], '1')) == 'table' then return {2, 0, now} end
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
