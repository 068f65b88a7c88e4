-- include: fair_queue.lua
-- fair_release: releases one level of the lock; the last one hands over to the head of the queue.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 count held (>= 1; left out: 1),
--      5 lease ms for what remains
-- Reply now in us: released | {1, 1, now} released, and more
--       {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free, 1 another's or 2 free and more, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late; more: see fair_hand_over
--
-- The count is set, never decremented. The owner leaves nothing behind in the queue.
--
-- Fast path: the head of the queue is one of our waiters, alive and subscribed. Then this script
-- hands over as hand_over() would. Otherwise it calls hand_over().
-- luacheck: read globals call now now_us BRIEF_MIN_US lock owner there
-- luacheck: read globals read_record channel_of open_queue
local remaining = (ARGV[4] or 1) - 1
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end

if there == 0 then
  local waiters = open_queue()
  waiters.leave()
  if call('exists', lock) == 1 then return {-1, 1, now} end
  waiters.hand_over('')
  return {-1, 2 * waiters.more, now}
end
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  local lease_ms = tonumber(ARGV[5])
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- PEXPIRE first, and always, as in plain_release.
  local ttl_ms = call('pttl', lock)
  if ttl_ms >= 0 then call('pexpire', lock, math.max(ttl_ms, lease_ms)) end
  if there ~= remaining then call('hset', lock, owner, remaining) end
  return {0, remaining, now}
end

local queue, deadlines, records = KEYS[2], KEYS[3], KEYS[4]
local head = call('lindex', queue, 0)
call('zscore', deadlines, owner) -- only checks the type: an error changes nothing
if head then
  local confirm, _, alive_until = read_record(head)
  local is_ready = confirm and confirm ~= '0' and alive_until - now >= 0
  call('del', lock)
  local listeners = is_ready and redis.pcall(ARGV[3], channel_of(head), now_us)
  if type(listeners) == 'number' and listeners > 0 then
    call('lpop', queue)
    call('zrem', deadlines, head)
    call('hdel', records, head)
    call('hset', lock, head, '1')
    call('pexpire', lock, confirm)
    return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
  end
  local waiters = open_queue()
  if waiters.hand_over('') == 'refused' then return {2, 0, now} end
  return now_us >= BRIEF_MIN_US and waiters.more == 0 and now_us or {1, waiters.more, now}
end
call('hlen', records) -- likewise
call('del', lock)
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
