-- include: fair_queue.lua
-- fair_acquire: acquires the lock, re-enters it, or joins its queue.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 horizon: a waiter that is silent for so
--      many ms counts as dead, 5 confirm: how many ms a grant may wait for us, 0 if we are not
--      subscribed, 6 arrival: as replied before, 0 at first, 7 wait: 1 joins the queue, 0 tries
--      once, 8 lease ms, 9 count the owner holds (0 = first), 10 how many ms a Java waiter adds to
--      the deadlines behind it; left out from 6 on: 0, 1, 30000, 0, 300000
-- Reply now in us: it was free, and is held | {1, count, now} held, else
--       {0, pttl, place, arrival, now in us, again, now} not yet; place 0 is beyond the 64th, and
--       when tried once there is neither place nor arrival; again: the lock is free, and in so many
--       ms the head of the queue counts as dead; 1: there may be more to sweep
--       {-1, 0, now} our hold is gone | {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once. A waiter that is
-- already queued keeps its place. Its arrival number is the time it joined the queue. A waiter that
-- was swept by mistake, or missed its grant, finds its place again by that number.
-- luacheck: read globals call now now_us BRIEF_MIN_US lock owner there read_record open_queue
local PLACES_MAX = 64 -- how many places of the queue are examined
local AGAIN_MAX_MS = 60000 -- every waiter attempts sooner anyway
local KEEP_RECORDS = 3 -- horizons; renewed when one of them is over
local queue, deadlines, records = KEYS[2], KEYS[3], KEYS[4]
local horizon_ms, confirm, arrival = tonumber(ARGV[4]), ARGV[5], (ARGV[6] or 0) + 0
local waits = ARGV[7] ~= '0'
local lease_ms, count, java_wait_ms = ARGV[8] or '30000', (ARGV[9] or 0) + 0, ARGV[10] or 300000
local wanted = count + 1
if ARGV[8] and lease_ms - 1 < 0 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

-- Ours, perhaps by a grant: as in plain_acquire.
if there > 0 then
  if count > 0 and there ~= count and there ~= wanted then return {-2, there, now} end
  if count == 0 then open_queue().leave() end
  if there ~= wanted then call('hset', lock, owner, wanted) end
  local ttl_ms = call('pttl', lock)
  local is_residue = there ~= count and there ~= wanted
  if is_residue or ttl_ms >= 0 then
    local longer = not is_residue and ttl_ms > tonumber(lease_ms)
    call('pexpire', lock, longer and ttl_ms or lease_ms)
  end
  return {1, wanted, now}
end
if count > 0 then return {-1, 0, now} end

local alive_until = now + horizon_ms
local function write_record()
  local number = string.format('%.0f', arrival)
  call('hset', records, owner, confirm .. ' ' .. number .. ' ' .. alive_until)
  if call('pttl', records) < 2 * horizon_ms then
    call('pexpire', records, KEEP_RECORDS * horizon_ms)
  end
end

local ttl_ms = call('pttl', lock)
local again_ms = 0
local deadline = call('zscore', deadlines, owner)
if deadline or arrival > 0 or ttl_ms == -2 then
  local waiters = open_queue()

  -- Enters the queue again, before the first waiter that is Java's or arrived later. Beyond
  -- PLACES_MAX the queue is assumed to be in order, for a binary search.
  local function enter_by_arrival()
    local others = call('lrange', queue, 0, PLACES_MAX - 1)
    local function is_behind(waiter)
      local record = waiters.record_of(waiter)
      return not record or record.arrival > arrival
    end
    for _, waiter in ipairs(others) do
      if is_behind(waiter) then
        call('linsert', queue, 'before', waiter, owner)
        return
      end
    end
    local low, high = #others, call('llen', queue)
    if high > low and is_behind(call('lindex', queue, -1)) then
      while low < high - 1 do
        local middle = math.floor((low + high - 1) / 2)
        if is_behind(call('lindex', queue, middle)) then
          high = middle + 1
        else
          low = middle + 1
        end
      end
      call('linsert', queue, 'before', call('lindex', queue, low), owner)
    else
      call('rpush', queue, owner)
    end
  end

  if waits then
    -- A deadline without a place: only a user who edits the keys can cause that.
    if deadline and call('llen', queue) < call('zcard', deadlines) and
       not call('lpos', queue, owner) then
      call('zrem', deadlines, owner)
      deadline = false
    end
    if not deadline and arrival > 0 then
      if call('llen', queue) > call('zcard', deadlines) then -- They were edited, too.
        call('lrem', queue, 0, owner)
      end
      write_record()
      enter_by_arrival()
      waiters.forget_head()
      deadline = alive_until
      call('zadd', deadlines, deadline, owner)
    elseif deadline then -- Renew our own record before dead waiters are swept.
      local record = waiters.record_of(owner)
      if record then arrival = record.arrival end
      if arrival == 0 then arrival = now_us end
      write_record()
    end
    waiters.deadline = deadline
  end

  if ttl_ms == -2 then
    local outcome = waiters.hand_over(owner, not waits)
    if outcome == 'nobody' or outcome == 'caller' then
      if outcome == 'caller' then waiters.drop_first(owner) else waiters.leave() end
      call('hset', lock, owner, '1')
      local expiry = redis.pcall('pexpire', lock, lease_ms)
      if expiry ~= 1 then
        call('del', lock) -- A lock without a lease would never expire.
        return expiry
      end
      return now_us >= BRIEF_MIN_US and now_us or {1, 1, now}
    end
    ttl_ms = call('pttl', lock)
    if waiters.more == 1 then
      again_ms = 1
    elseif outcome == 'notified' then
      again_ms = math.max(1, math.min(waiters.counts_until - now + 1, AGAIN_MAX_MS))
    end
  end

  if waits and deadline then
    waiters.keep_first(waiters.first())
    -- Each Java waiter in front takes its own wait off our deadline when it leaves.
    local others = call('lrange', queue, 0, PLACES_MAX - 1)
    local found = #others > 0 and call('hmget', records, unpack(others)) or {}
    local place, java = 0, 0
    for i, waiter in ipairs(others) do
      if waiter == owner then
        place = i
        break
      end
      if not found[i] then java = java + 1 end
    end
    if place == 0 then
      java = math.max(0, call('llen', queue) - call('hlen', records))
    end
    local until_ms = now + horizon_ms + java * java_wait_ms
    if java > 0 then until_ms = math.max(until_ms, tonumber(deadline)) end
    call('zadd', deadlines, until_ms, owner)
    return {0, ttl_ms, place, arrival, now_us, again_ms, now}
  end
end
if not waits then return {0, ttl_ms, 0, 0, now_us, again_ms, now} end

-- At the end of the queue. Java sweeps by deadlines: ours is no earlier than that of the last.
local known = call('hlen', records)
local last = call('lindex', queue, -1)
local last_until_ms = 0
arrival = now_us
if last then
  last_until_ms = (call('zscore', deadlines, last) or 0) + 0
  local _, last_arrival = read_record(last)
  if last_arrival and last_arrival - 9e15 < 0 then arrival = math.max(arrival, last_arrival + 1) end
end
local place = call('rpush', queue, owner)
local java = math.max(0, place - 1 - known)
local until_ms = math.max(now + horizon_ms + java * java_wait_ms, last_until_ms)
call('zadd', deadlines, until_ms, owner)
write_record()

-- Deletes a few records of dead waiters that Java swept, picked at random.
if known > place + 7 then
  for _, waiter in ipairs(call('hrandfield', records, 8)) do
    local confirmed, _, lives_until = read_record(waiter)
    local is_dead = not confirmed or lives_until - now < 0
    if is_dead and not call('zscore', deadlines, waiter) then
      call('hdel', records, waiter)
    end
  end
end
return {0, ttl_ms, place <= PLACES_MAX and place or 0, arrival, now_us, again_ms, now}
