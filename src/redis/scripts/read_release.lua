-- include: readwrite_common.lua
-- read_release: releases one level of a reader; the last of all readers frees the lock.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 reader, 3 count held (>= 1), 4 'publish' or 'spublish',
--                         5 channel
-- Reply now in us: released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free or 1 another's, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. With readers only, the lock lasts as long as the longest
-- remaining hold. While a writer that also reads holds it, the lock keeps the writer's lease.
-- luacheck: read globals now now_us too_late BRIEF_MIN_US READS
-- luacheck: read globals NOT_THIS_KIND NOT_A_COUNT hold_keys
-- luacheck: read globals delete_holds readers_of leave_to_readers
if too_late then return {-3, 0, now} end

local lock, reader = KEYS[1], ARGV[2]
local remaining = tonumber(ARGV[3]) - 1
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end

local fields = redis.call('hmget', lock, 'mode', reader)
local mode = fields[1]
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply(NOT_THIS_KIND)
end
local holds = hold_keys(lock, reader)
if not fields[2] then
  -- Our keys may remain after a break or a DEL of the lock. Waiters may have missed the message.
  delete_holds(holds, remaining + 1)
  if mode then return {-1, 1, now} end
  redis.pcall(ARGV[4], ARGV[5], '0')
  return {-1, 0, now}
end
if not string.find(fields[2], READS) then return redis.error_reply(NOT_A_COUNT) end
local there = tonumber(fields[2])
if there < remaining then return {-2, there, now} end
local others = mode == 'read' and readers_of(lock, reader)
if others == nil then return redis.error_reply(NOT_A_COUNT) end

-- DEL comes before HSET: a server that is out of memory lets a script finish once it has written.
for i = remaining + 1, there do redis.call('del', holds .. i) end
if remaining == 0 then
  redis.call('hdel', lock, reader)
elseif there ~= remaining then
  redis.call('hset', lock, reader, remaining)
end

local published = 0
if others then
  if remaining > 0 then others[#others + 1], others[#others + 2] = reader, remaining end
  if not leave_to_readers(lock, others) then
    redis.call('del', lock)
    published = redis.pcall(ARGV[4], ARGV[5], '0')
  end
end
if remaining > 0 then return {0, remaining, now} end
if type(published) == 'table' then return {2, 0, now} end
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
