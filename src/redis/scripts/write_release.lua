-- include: readwrite_common.lua
-- write_release: releases one level of the writer; the last one frees the lock, or leaves it to the
-- writer's own reads.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 writer's field, 3 lease ms for what remains,
--                         4 count held (>= 1), 5 'publish' or 'spublish', 6 channel
-- Reply now in us: released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free or 1 another's, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. When the writer stops writing, all waiters are notified,
-- even if it still reads: other readers may join then. From then on the lock's lease is that of the
-- longest read, not the writer's. (Redisson keeps the writer's lease, so a dead reader blocks
-- others until that ends.)
-- luacheck: read globals now now_us too_late BRIEF_MIN_US COUNT
-- luacheck: read globals NOT_THIS_KIND NOT_A_COUNT readers_of leave_to_readers
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
if not string.find(fields[2], COUNT) then return redis.error_reply(NOT_A_COUNT) end
local there = tonumber(fields[2])
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  local ttl_ms, lease_ms = redis.call('pttl', lock), tonumber(ARGV[3])
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- As in plain_release: PEXPIRE first, so that a server out of memory lets the script finish.
  if ttl_ms >= 0 then
    redis.call('pexpire', lock, math.max(ttl_ms, lease_ms))
  end
  if there ~= remaining then redis.call('hset', lock, field, remaining) end
  return {0, remaining, now}
end

local readers = readers_of(lock)
if not readers then return redis.error_reply(NOT_A_COUNT) end
redis.call('hdel', lock, field)
if leave_to_readers(lock, readers) then
  redis.call('hset', lock, 'mode', 'read')
else
  redis.call('del', lock)
end
if type(redis.pcall(ARGV[5], ARGV[6], '1')) == 'table' then return {2, 0, now} end
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
