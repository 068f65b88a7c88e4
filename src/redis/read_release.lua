-- include: readwrite_common.lua
-- read_release: give back one level of a reader; the last of all readers frees the lock.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 reader, 3 count held (>= 1), 4 'publish' or 'spublish',
--                         5 channel
-- Reply now in us: released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free or 1 another's, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. Among readers the lock lasts as long as the longest hold
-- that is left; under a writer, who reads too, its lease is the writer's and stays. What is left
-- of the lock tells whether all levels have to be looked at to know the longest.
-- luacheck: read globals now now_us too_late BRIEF_MIN_US
-- luacheck: read globals NOT_THIS_KIND hold_keys longest_hold_ms first_hold_ms
-- luacheck: read globals delete_holds drop_dead_readers
if too_late then return {-3, 0, now} end

local NEAR_MS = 10 -- the lock and the keys get their leases one after the other

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
  -- Keys of ours may be left: the lock was broken, or deleted. Waiters may not have heard of it.
  delete_holds(holds, remaining + 1)
  if mode then return {-1, 1, now} end
  redis.pcall(ARGV[4], ARGV[5], '0')
  return {-1, 0, now}
end
local there = tonumber(fields[2])
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end
if there < remaining then return {-2, there, now} end

-- DEL comes before HSET: a server that is out of memory lets a script finish once it has written.
for i = remaining + 1, there do redis.call('del', holds .. i) end
if remaining == 0 then
  redis.call('hdel', lock, reader)
elseif there ~= remaining then
  redis.call('hset', lock, reader, remaining)
end

local told = 0
if mode == 'read' then
  local longest_ms = drop_dead_readers(lock, first_hold_ms)
  local ttl_ms = redis.call('pttl', lock)
  local fits = ttl_ms == -1 or math.abs(ttl_ms - longest_ms) <= NEAR_MS
  if longest_ms > 0 and not fits then longest_ms = drop_dead_readers(lock, longest_hold_ms) end
  if longest_ms == 0 then
    redis.call('del', lock)
    told = redis.pcall(ARGV[4], ARGV[5], '0')
  elseif not fits then
    redis.call('pexpire', lock, longest_ms)
  end
end
if remaining > 0 then return {0, remaining, now} end
if type(told) == 'table' then return {2, 0, now} end
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
