-- include: guard.lua
-- fair_common.lua: what the scripts of the fair lock share; in front of each of them.
--
-- KEYS 1 lock hash, 2 queue: a list of owners, the first in line first
--      3 deadlines: a sorted set of the same owners, with the time until which a Java client
--        believes them to be alive
--      4 records: a hash, one "confirm ticket alive-until" for each waiter of ours
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 what waiters' channels begin with
--
-- A waiter without a record is Java's: it is told when the lock is free, and comes for it. One with
-- a record and a confirm above 0 is listening: the lock is made its own, for so many ms, and it is
-- told the time of that in us. Nobody touches the records but us; a Java client sees a queue, its
-- deadlines, and a lock that has a new holder.
-- luacheck: read globals seconds micros now too_late
-- luacheck: push ignore 211
if too_late then return {-3, 0, now} end

local lock, queue, deadlines, records = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, publish, channel_prefix = ARGV[2], ARGV[3], ARGV[4]
local now_us = seconds * 1000000 + micros
local SWEEP_MAX = 100 -- so many that are dead, or hear nothing, go in one call
local swept = 0

-- All keys are looked at before anything is written: one of a wrong type leaves all as it was.
local fields = redis.call('hmget', lock, owner, 'mode')
local deadline = redis.call('zscore', deadlines, owner)
local head = redis.call('lindex', queue, 0) -- false: nobody; nil: look again
local known = redis.call('hlen', records)
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
local there = tonumber(fields[1] or 0) -- how often the owner holds it
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end

local function integer(number)
  return string.format('%.0f', number)
end

local function record_of(waiter)
  local text = redis.call('hget', records, waiter)
  if not text then return nil end
  local confirm, ticket, alive_until = string.match(text, '^(%d+) (%d+) (%d+)$')
  if not confirm then return nil end
  return {confirm = confirm, ticket = tonumber(ticket), alive_until = tonumber(alive_until)}
end

local function drop_first(waiter)
  redis.call('lpop', queue)
  redis.call('zrem', deadlines, waiter)
  known = known - redis.call('hdel', records, waiter)
  head = nil
end

local function leave_line()
  redis.call('hdel', records, owner)
  if not deadline then return end
  redis.call('zrem', deadlines, owner)
  redis.call('lrem', queue, 0, owner)
  head = nil
end

-- The first waiter that is not known to be dead, and its record, if it has one.
local function first_in_line()
  while true do
    if head == nil then head = redis.call('lindex', queue, 0) end
    if not head then return nil, nil end
    local record = record_of(head)
    if record and record.alive_until >= now then return head, record end
    local is_java = not record and tonumber(redis.call('zscore', deadlines, head) or 0) > now
    if is_java or swept == SWEEP_MAX then return head, nil end
    drop_first(head)
    swept = swept + 1
  end
end

-- A Java client that looks at the line must come to the same result: for one of ours who stays the
-- first, a deadline that is behind is repaired.
local function keep_first(first, record)
  if record and tonumber(redis.call('zscore', deadlines, first) or 0) <= now then
    redis.call('zadd', deadlines, integer(record.alive_until), first)
  end
end

-- The lock is free: gives it to the first in line who is listening, or tells the first who is not.
-- 'nobody' is in line; the 'caller' is the first; 'told', or 'left' alone when it is to be done
-- silently; 'granted' to somebody; 'refused': the server lets us publish nothing.
local function hand_over(caller, silently)
  while true do
    local first, record = first_in_line()
    if not first then return 'nobody' end
    if first == caller then return 'caller' end
    local channel = channel_prefix .. ':' .. first
    if not record or record.confirm == '0' or swept == SWEEP_MAX then
      keep_first(first, record)
      if silently then return 'left' end
      return type(redis.pcall(publish, channel, '0')) == 'table' and 'refused' or 'told'
    end
    local listeners = redis.pcall(publish, channel, string.format('%d%06d', seconds, micros))
    if type(listeners) == 'table' then return 'refused' end
    drop_first(first)
    if listeners > 0 then
      redis.call('hset', lock, first, '1')
      redis.call('pexpire', lock, record.confirm)
      return 'granted'
    end
    swept = swept + 1
  end
end
-- luacheck: pop
