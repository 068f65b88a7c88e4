-- include: fair_common.lua
-- fair_release: give back one level of the lock; the last one hands it over to the first in line.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 count held (>= 1; left out: 1),
--      5 lease ms for what remains
-- Reply now in us: released | {1, 1, now} released, and more
--       {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free, 1 another's or 2 free and more, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late; more: see fair_hand_over
--
-- The count is set, never decremented. Nothing of the owner stays behind in the line, either.
--
-- Mostly the first in line is one of ours, alive and listening: then it is handed over here, as
-- hand_over() does it, and else by that.
-- luacheck: read globals call now now_us BRIEF_MIN_US lock owner there
-- luacheck: read globals read_record channel_of open_line
local remaining = (ARGV[4] or 1) - 1
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end

if there == 0 then
  local line = open_line()
  line.leave()
  if call('exists', lock) == 1 then return {-1, 1, now} end
  line.hand_over('')
  return {-1, 2 * line.more, now}
end
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  local lease_ms = tonumber(ARGV[5])
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- The expiry first and in any case, as in plain_release.
  local ttl_ms = call('pttl', lock)
  if ttl_ms >= 0 then call('pexpire', lock, math.max(ttl_ms, lease_ms)) end
  if there ~= remaining then call('hset', lock, owner, remaining) end
  return {0, remaining, now}
end

local queue, deadlines, records = KEYS[2], KEYS[3], KEYS[4]
local head = call('lindex', queue, 0)
call('zscore', deadlines, owner) -- for its type alone: if it is wrong, all is left as it was
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
  local line = open_line()
  if line.hand_over('') == 'refused' then return {2, 0, now} end
  return now_us >= BRIEF_MIN_US and line.more == 0 and now_us or {1, line.more, now}
end
call('hlen', records) -- likewise
call('del', lock)
return now_us >= BRIEF_MIN_US and now_us or {1, 0, now}
