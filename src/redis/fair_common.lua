-- include: guard.lua
-- fair_common.lua: what the scripts of the fair lock share; in front of each of them.
--
-- KEYS 1 lock hash, 2 queue: a list of owners, the first in line first
--      3 deadlines: a sorted set of the same owners, with the time until which a Java client
--        believes them to be alive
--      4 records: a hash, one "confirm ticket alive-until" for each waiter of ours
--      5 unheard: a hash, when each Java waiter behind the first was told something for the first
--        time that nobody heard; it expires soon
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish'
--
-- A waiter without a record is Java's: it is told when the lock is free, and comes for it. One with
-- a record and a confirm above 0 is listening: the lock is made its own, for so many ms, and it is
-- told the time of that in us. Nobody touches the records but us; a Java client sees a queue, its
-- deadlines, and a lock that has a new holder.
-- luacheck: read globals call now_us too_late
-- luacheck: globals now
-- luacheck: push ignore 211
if too_late then return {-3, 0, now} end

now = now - now % 1 -- in whole ms
local lock, owner = KEYS[1], ARGV[2]
local fields = call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
local there = tonumber(fields[1] or 0) -- how often the owner holds it
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end

local function channel_of(waiter)
  local braced = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  return 'redisson_lock__channel:' .. braced .. ':' .. waiter
end

-- The confirm, the ticket and the alive-until of a waiter of ours; nil if it is none.
local function read_record(waiter)
  local text = redis.call('hget', KEYS[4], waiter)
  if not text then return nil end
  return string.match(text, '^(%d+) (%d+) (%d+)$')
end

-- What can be done with the line. Lua makes a function each time it comes to where it is written,
-- and that costs the server nearly as much as a command. So scripts do what is mostly asked of them
-- without these, and whatever is rare begins here.
--
-- The keys of the line are looked at before anything is written: one of a wrong type leaves all as
-- it was.
-- luacheck: push ignore 431
local function open_line()
  local SWEEP_MAX = 100 -- so many that are dead, or hear nothing, go in one call
  local TELL_MAX = 1000 -- so many are told, until one of them hears,
  local LAST_MAX = 64 -- and then so many of the last
  local GRACE_MS = 2000 -- so long a Java client that nobody heard for may take to come all the same
  local call = redis.call
  local lock, queue, deadlines, records, unheard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  local owner, publish = ARGV[2], ARGV[3]
  local swept = 0
  local line = {
    more = 0, -- 1: SWEEP_MAX are gone, the lock is free, and there may be more of them
    counts_until = 0, -- until when the first in line is believed to be alive
    deadline = call('zscore', deadlines, owner) -- of the owner, if it is in line
  }
  local head = call('lindex', queue, 0) -- false: nobody; nil: look again

  function line.record_of(waiter)
    local confirm, ticket, alive_until = read_record(waiter)
    if not confirm then return nil end
    return {confirm = confirm, ticket = tonumber(ticket), alive_until = tonumber(alive_until)}
  end

  function line.drop_first(waiter)
    call('lpop', queue)
    call('zrem', deadlines, waiter)
    call('hdel', records, waiter)
    head = nil
  end

  function line.leave()
    call('hdel', records, owner)
    if not line.deadline then return end
    call('zrem', deadlines, owner)
    call('lrem', queue, 0, owner)
    head = nil
  end

  function line.look_again()
    head = nil
  end

  -- The first waiter that is not known to be dead, and its record, if it has one.
  function line.first()
    while true do
      if head == nil then head = call('lindex', queue, 0) end
      if not head then return nil, nil end
      local record = line.record_of(head)
      line.counts_until = record and record.alive_until or
        tonumber(call('zscore', deadlines, head) or 0)
      if record and line.counts_until >= now then return head, record end
      local is_java = not record and line.counts_until > now
      if is_java or swept == SWEEP_MAX then return head, nil end
      line.drop_first(head)
      swept = swept + 1
    end
  end

  -- A Java client that looks at the line must come to the same result: for one of ours who stays
  -- the first, a deadline that is behind is repaired.
  function line.keep_first(first, record)
    if record and tonumber(call('zscore', deadlines, first) or 0) <= now then
      call('zadd', deadlines, record.alive_until, first)
    end
  end

  local function tell(waiter, what)
    return redis.pcall(publish, channel_of(waiter), what)
  end

  -- What is only remembered for a while must not keep anybody from handing over: here errors count
  -- as nothing known.
  local function unheard_since(waiter)
    local since = redis.pcall('hget', unheard, waiter)
    return type(since) == 'string' and tonumber(since) or nil
  end

  -- The first in line did not hear: those behind it are told as well, Java clients until one of
  -- them hears, and the first of ours who does: it comes again when the time of the first is over.
  -- Java clients that do not hear, either, are remembered, so as not to be waited for one after the
  -- other. Beyond TELL_MAX it is tried with those who came last.
  local function tell_on(caller)
    local others = call('lrange', queue, 1, TELL_MAX)
    local is_java_heard, is_noted, comes = false, false, false
    for _, waiter in ipairs(others) do
      local is_java = not line.record_of(waiter)
      comes = waiter == caller
      if not comes and not (is_java and (is_java_heard or unheard_since(waiter))) then
        local listeners = tell(waiter, '0')
        local is_heard = type(listeners) == 'table' or listeners > 0
        comes = is_heard and not is_java
        is_java_heard = is_java_heard or is_heard
        if is_java and not is_heard then
          redis.pcall('hset', unheard, waiter, now)
          is_noted = true
        end
      end
      if comes then break end
    end
    if is_noted then redis.pcall('pexpire', unheard, 2 * GRACE_MS) end

    for place = 1, #others == TELL_MAX and not comes and LAST_MAX or 0 do
      local waiter = call('lindex', queue, -place)
      local listeners = waiter ~= caller and tell(waiter, '0')
      if listeners ~= 0 then break end
    end
  end

  -- It is the turn of a Java client, and nobody heard. It may be about to listen, be connecting
  -- again or listen to a replica, so it has a while to come. Its deadline says so to everybody, and
  -- the lock stays free until it comes or is swept. True: it has had that while already.
  local function is_given_up(first)
    local since = unheard_since(first) or now
    if since + GRACE_MS <= now then
      call('hdel', unheard, first)
      return true
    end
    if since + GRACE_MS < line.counts_until then
      line.counts_until = since + GRACE_MS
      call('zadd', deadlines, line.counts_until, first)
    end
    return false
  end

  -- The lock is free: gives it to the first in line who is listening, or tells the first who is
  -- not. 'nobody' is in line; the 'caller' is the first; 'told', or 'left' alone when it is to be
  -- done silently; 'granted' to somebody; 'refused': the server lets us publish nothing.
  function line.hand_over(caller, silently)
    while true do
      local first, record = line.first()
      if not first then return 'nobody' end
      if first == caller then return 'caller' end
      if swept == SWEEP_MAX then line.more = 1 end
      local is_granted = record and record.confirm ~= '0' and line.more == 0
      if not is_granted then
        line.keep_first(first, record)
        if silently then return 'left' end
      end
      local listeners = tell(first, is_granted and now_us or '0')
      if type(listeners) == 'table' then return 'refused' end
      if not is_granted then
        if listeners > 0 or record or line.more == 1 then return 'told' end
        if not is_given_up(first) then
          tell_on(caller)
          return 'told'
        end
      end
      line.drop_first(first)
      if listeners > 0 then
        call('hset', lock, first, '1')
        call('pexpire', lock, record.confirm)
        return 'granted'
      end
      swept = swept + 1
    end
  end

  call('hlen', records) -- for its type alone
  return line
end
-- luacheck: pop
-- luacheck: pop
