-- include: fair_common.lua
-- fair_acquire: take the lock, re-enter it, or stand in line for it.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 channel prefix, 5 lease ms,
--      6 count the owner holds (0 = first), 7 wait: 1 stands in line, 0 tries once,
--      8 confirm: how many ms a grant may wait for us, 0 if we are not listening,
--      9 ticket: as answered before, 0 at first, 10 horizon: how many ms without a word from us
--      mean that we are dead, 11 how many ms a Java waiter adds to the deadlines behind it
-- Reply {1, count, now} held | {0, pttl, place, ticket, now in us, again, now} not yet; place 0 is
--       beyond the 64th, and when tried once there is neither place nor ticket; again: the lock is
--       free, and in so many ms the first in line counts as dead; 1: there may be more to sweep
--       {-1, 0, now} our hold is gone | {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once. Who is in line already
-- keeps its place. A ticket is the time at which somebody came, and what it finds its place by when
-- it was taken out of the line: swept by mistake, or granted the lock without hearing of it.
-- luacheck: read globals now now_us lock queue deadlines records known owner there integer
-- luacheck: read globals record_of drop_first leave_line first_in_line keep_first hand_over
-- luacheck: read globals more counts_until
-- luacheck: globals deadline head
local LOOK_AT = 64 -- of a line of any length
local AGAIN_MAX_MS = 60000 -- whoever waits comes sooner, anyway
local lease_ms, count, waits = ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1'
local confirm, ticket = ARGV[8], tonumber(ARGV[9])
local horizon_ms, java_wait_ms = tonumber(ARGV[10]), tonumber(ARGV[11])
local wanted = count + 1
if tonumber(lease_ms) < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

-- Ours, be it by a grant: as in plain_acquire.
if there > 0 then
  if count > 0 and there ~= count and there ~= wanted then return {-2, there, now} end
  if count == 0 then leave_line() end
  if there ~= wanted then redis.call('hset', lock, owner, wanted) end
  local ttl_ms = redis.call('pttl', lock)
  local is_leftover = there ~= count and there ~= wanted
  if is_leftover or ttl_ms >= 0 then
    local longer = not is_leftover and ttl_ms > tonumber(lease_ms)
    redis.call('pexpire', lock, longer and ttl_ms or lease_ms)
  end
  return {1, wanted, now}
end
if count > 0 then return {-1, 0, now} end

local alive_until = integer(now + horizon_ms)
local function write_record()
  redis.call('hset', records, owner, confirm .. ' ' .. integer(ticket) .. ' ' .. alive_until)
  if redis.call('pttl', records) < 2 * horizon_ms then
    redis.call('pexpire', records, integer(2 * horizon_ms))
  end
end

-- Back into the line, in front of the first who is Java's or came later. Far behind it is believed
-- to be in order.
local function enter_by_ticket()
  local line = redis.call('lrange', queue, 0, LOOK_AT - 1)
  local function is_behind(waiter)
    local record = record_of(waiter)
    return not record or record.ticket > ticket
  end
  for _, waiter in ipairs(line) do
    if is_behind(waiter) then
      redis.call('linsert', queue, 'before', waiter, owner)
      return
    end
  end
  local low, high = #line, redis.call('llen', queue)
  if high > low and is_behind(redis.call('lindex', queue, -1)) then
    while low < high - 1 do
      local middle = math.floor((low + high - 1) / 2)
      if is_behind(redis.call('lindex', queue, middle)) then
        high = middle + 1
      else
        low = middle + 1
      end
    end
    redis.call('linsert', queue, 'before', redis.call('lindex', queue, low), owner)
  else
    redis.call('rpush', queue, owner)
  end
end

if waits then
  -- A deadline without a place cannot be, unless somebody edited the keys.
  if deadline and redis.call('llen', queue) < redis.call('zcard', deadlines) and
     not redis.call('lpos', queue, owner) then
    redis.call('zrem', deadlines, owner)
    deadline = false
  end
  if not deadline and ticket > 0 then
    if redis.call('llen', queue) > redis.call('zcard', deadlines) then -- They were edited, too.
      redis.call('lrem', queue, 0, owner)
    end
    write_record()
    enter_by_ticket()
    head = nil
    deadline = alive_until
    redis.call('zadd', deadlines, deadline, owner)
  elseif deadline then -- We are alive: say so before anybody who is not is swept.
    local record = record_of(owner)
    if record then ticket = record.ticket end
    if ticket == 0 then ticket = now_us end
    write_record()
  end
end

local ttl_ms = redis.call('pttl', lock)
local again_ms = 0
if ttl_ms == -2 then
  local outcome = hand_over(owner, not waits)
  if outcome == 'nobody' or outcome == 'caller' then
    if outcome == 'caller' then drop_first(owner) else leave_line() end
    redis.call('hset', lock, owner, '1')
    local expiry = redis.pcall('pexpire', lock, lease_ms)
    if type(expiry) == 'table' then
      redis.call('del', lock) -- A lock without a lease would outlive everybody.
      return expiry
    end
    return {1, 1, now}
  end
  ttl_ms = redis.call('pttl', lock)
  if more == 1 then
    again_ms = 1
  elseif outcome == 'told' then
    again_ms = math.max(1, math.min(counts_until - now + 1, AGAIN_MAX_MS))
  end
end
if not waits then return {0, ttl_ms, 0, 0, now_us, again_ms, now} end

if deadline then
  keep_first(first_in_line())
  -- Each Java waiter in front takes its own wait off our deadline when it leaves.
  local line = redis.call('lrange', queue, 0, LOOK_AT - 1)
  local found = #line > 0 and redis.call('hmget', records, unpack(line)) or {}
  local place, java = 0, 0
  for i, waiter in ipairs(line) do
    if waiter == owner then
      place = i
      break
    end
    if not found[i] then java = java + 1 end
  end
  if place == 0 then
    java = math.max(0, redis.call('llen', queue) - redis.call('hlen', records))
  end
  local until_ms = now + horizon_ms + java * java_wait_ms
  if java > 0 then until_ms = math.max(until_ms, tonumber(deadline)) end
  redis.call('zadd', deadlines, integer(until_ms), owner)
  return {0, ttl_ms, place, ticket, now_us, again_ms, now}
end

-- At the end of the line. Java sweeps by deadlines: ours is no earlier than that of the last.
local last = redis.call('lindex', queue, -1)
local last_until_ms = 0
ticket = now_us
if last then
  last_until_ms = tonumber(redis.call('zscore', deadlines, last) or 0)
  local record = record_of(last)
  if record then ticket = math.max(ticket, record.ticket + 1) end
end
local place = redis.call('rpush', queue, owner)
local java = math.max(0, place - 1 - known)
local until_ms = math.max(now + horizon_ms + java * java_wait_ms, last_until_ms)
redis.call('zadd', deadlines, integer(until_ms), owner)
write_record()

-- Records of dead waiters that Java swept: a few go, found by chance.
if known > place + 7 then
  for _, waiter in ipairs(redis.call('hrandfield', records, 8)) do
    local record = record_of(waiter)
    local is_dead = not record or record.alive_until < now
    if is_dead and not redis.call('zscore', deadlines, waiter) then
      redis.call('hdel', records, waiter)
    end
  end
end
return {0, ttl_ms, place <= LOOK_AT and place or 0, ticket, now_us, again_ms, now}
