-- include: guard.lua
-- fair_queue.lua: shared by the scripts of the fair lock; included in front of each of them.
--
-- KEYS 1 lock hash, 2 queue: a list of owners in order of arrival
--      3 deadlines: a sorted set of the same owners, with the time until which a Java client
--        believes them to be alive
--      4 records: a hash, one "confirm arrival alive-until" for each waiter of ours
--      5 unheard: a hash, when a message to each Java waiter behind the first reached no subscriber
--        for the first time; it expires soon
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish'
--
-- A waiter without a record is Java's: it gets a message when the lock is free, and acquires. A
-- waiter with a record and a confirm above 0 is subscribed: the script gives it the lock for that
-- many ms, and publishes the time of the grant in us. Only our clients use the records; a Java
-- client sees a queue, its deadlines, and a lock with a new holder.
-- luacheck: read globals call now_us too_late COUNT
-- luacheck: globals now
-- luacheck: push ignore 211
if too_late then return {-3, 0, now} end

now = now - now % 1 -- in whole ms
local lock, owner = KEYS[1], ARGV[2]
local fields = call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
-- How often the owner holds it.
local there = not fields[1] and 0 or fields[1] == '1' and 1 or
  string.find(fields[1], COUNT) and tonumber(fields[1])
if not there then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end

local function channel_of(waiter)
  local braced = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  return 'redisson_lock__channel:' .. braced .. ':' .. waiter
end

-- The confirm, the arrival and the alive-until of a waiter of ours; nil if it is not ours. PEXPIRE
-- sets the confirm after the lock has changed hands and must not fail then, so a waiter whose
-- confirm is too large does not count as ours.
local function read_record(waiter)
  local text = redis.call('hget', KEYS[4], waiter)
  if not text then return nil end
  local confirm, arrival, alive_until = string.match(text, '^(%d+) (%d+) (%d+)$')
  if confirm and #confirm > 15 then return nil end
  return confirm, arrival, alive_until
end

-- The operations on the queue. Lua creates a closure each time it runs a function definition, which
-- costs the server nearly as much as a command. So scripts do without these on their fast path.
--
-- Reads all keys of the queue before anything is written: a key of a wrong type changes nothing.
-- luacheck: push ignore 431
local function open_queue()
  local SWEEP_MAX = 100 -- dead or unsubscribed waiters removed in one call
  local NOTIFY_MAX = 1000 -- waiters notified until one of them receives it,
  local LAST_MAX = 64 -- and then so many from the end
  local GRACE_MS = 2000 -- how long a Java client without a subscription may still take to acquire
  local call = redis.call
  local lock, queue, deadlines, records, unheard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
  local owner, publish = ARGV[2], ARGV[3]
  local swept = 0
  local waiters = {
    more = 0, -- 1: SWEEP_MAX are gone, the lock is free, and there may be more of them
    counts_until = 0, -- until when the head of the queue counts as alive
    deadline = call('zscore', deadlines, owner) -- of the owner, if it is queued
  }
  local head = call('lindex', queue, 0) -- false: the queue is empty; nil: not read

  function waiters.record_of(waiter)
    local confirm, arrival, alive_until = read_record(waiter)
    if not confirm then return nil end
    return {confirm = confirm, arrival = tonumber(arrival), alive_until = tonumber(alive_until)}
  end

  function waiters.drop_first(waiter)
    call('lpop', queue)
    call('zrem', deadlines, waiter)
    call('hdel', records, waiter)
    head = nil
  end

  function waiters.leave()
    call('hdel', records, owner)
    if not waiters.deadline then return end
    call('zrem', deadlines, owner)
    call('lrem', queue, 0, owner)
    head = nil
  end

  function waiters.forget_head()
    head = nil
  end

  -- The first waiter that is not known to be dead, and its record, if it has one.
  function waiters.first()
    while true do
      if head == nil then head = call('lindex', queue, 0) end
      if not head then return nil, nil end
      local record = waiters.record_of(head)
      waiters.counts_until = record and record.alive_until or
        tonumber(call('zscore', deadlines, head) or 0)
      if record and waiters.counts_until >= now then return head, record end
      local is_java = not record and waiters.counts_until > now
      if is_java or swept == SWEEP_MAX then return head, nil end
      waiters.drop_first(head)
      swept = swept + 1
    end
  end

  -- A Java client that reads the queue must find the same head: if one of our waiters stays the
  -- first, its deadline is moved forward when it has passed.
  function waiters.keep_first(first, record)
    if record and tonumber(call('zscore', deadlines, first) or 0) <= now then
      call('zadd', deadlines, record.alive_until, first)
    end
  end

  local function notify(waiter, what)
    return redis.pcall(publish, channel_of(waiter), what)
  end

  -- This key is only a hint and must not prevent a hand-over: an error counts as no entry.
  local function unheard_since(waiter)
    local since = redis.pcall('hget', unheard, waiter)
    return type(since) == 'string' and tonumber(since) or nil
  end

  -- The message to the head of the queue reached no subscriber. Notifies the waiters behind it:
  -- Java clients until one receives it, and the first of ours that does, which attempts again when
  -- the head's time is over. Java clients without a subscription are recorded, so that the queue
  -- does not wait for one after the other. Beyond NOTIFY_MAX it tries the last ones.
  local function notify_next(caller)
    local others = call('lrange', queue, 1, NOTIFY_MAX)
    local java_received, is_noted, comes = false, false, false
    for _, waiter in ipairs(others) do
      local is_java = not waiters.record_of(waiter)
      comes = waiter == caller
      if not comes and not (is_java and (java_received or unheard_since(waiter))) then
        local listeners = notify(waiter, '0')
        local is_received = type(listeners) == 'table' or listeners > 0
        comes = is_received and not is_java
        java_received = java_received or is_received
        if is_java and not is_received then
          redis.pcall('hset', unheard, waiter, now)
          is_noted = true
        end
      end
      if comes then break end
    end
    if is_noted then redis.pcall('pexpire', unheard, 2 * GRACE_MS) end

    for place = 1, #others == NOTIFY_MAX and not comes and LAST_MAX or 0 do
      local waiter = call('lindex', queue, -place)
      local listeners = waiter ~= caller and notify(waiter, '0')
      if listeners ~= 0 then break end
    end
  end

  -- The head is a Java client, and no subscriber received the message. It may be about to
  -- subscribe, be reconnecting or be subscribed at a replica, so it gets GRACE_MS to acquire. All
  -- clients see that as its deadline, and the lock stays free until it acquires or is swept. True:
  -- that time is over.
  local function is_given_up(first)
    local since = unheard_since(first) or now
    if since + GRACE_MS <= now then
      call('hdel', unheard, first)
      return true
    end
    if since + GRACE_MS < waiters.counts_until then
      waiters.counts_until = since + GRACE_MS
      call('zadd', deadlines, waiters.counts_until, first)
    end
    return false
  end

  -- The lock is free: grants it to the head of the queue if that is subscribed, else notifies it.
  -- 'nobody' is queued; the 'caller' is the head; the head was 'notified', or 'left' alone if
  -- `silently`; 'granted' to a waiter; 'refused': the server refuses the publish.
  function waiters.hand_over(caller, silently)
    while true do
      local first, record = waiters.first()
      if not first then return 'nobody' end
      if first == caller then return 'caller' end
      if swept == SWEEP_MAX then waiters.more = 1 end
      local is_granted = record and record.confirm ~= '0' and waiters.more == 0
      if not is_granted then
        waiters.keep_first(first, record)
        if silently then return 'left' end
      end
      local listeners = notify(first, is_granted and now_us or '0')
      if type(listeners) == 'table' then return 'refused' end
      if not is_granted then
        if listeners > 0 or record or waiters.more == 1 then return 'notified' end
        if not is_given_up(first) then
          notify_next(caller)
          return 'notified'
        end
      end
      waiters.drop_first(first)
      if listeners > 0 then
        call('hset', lock, first, '1')
        call('pexpire', lock, record.confirm)
        return 'granted'
      end
      swept = swept + 1
    end
  end

  call('hlen', records) -- for its type alone
  return waiters
end
-- luacheck: pop
-- luacheck: pop
