-- include: fair_common.lua
-- fair_release: give back one level of the lock; the last one hands it over to the first in line.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 channel prefix,
--      5 lease ms for what remains, 6 count held (>= 1)
-- Reply {1, more, now} released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0 free, 1 another's or 2 free and more, now} not ours
--       {-2, count there, now} mismatch | {-3, 0, now} too late; more: see fair_hand_over
--
-- The count is set, never decremented. Nothing of the owner stays behind in the line, either.
-- luacheck: read globals now lock owner there leave_line hand_over more
local lease_ms, remaining = tonumber(ARGV[5]), tonumber(ARGV[6]) - 1
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end

if there == 0 then
  leave_line()
  if redis.call('exists', lock) == 1 then return {-1, 1, now} end
  hand_over('')
  return {-1, 2 * more, now}
end
if there < remaining then return {-2, there, now} end

if remaining > 0 then
  if lease_ms < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  -- The expiry first and in any case, as in plain_release.
  local ttl_ms = redis.call('pttl', lock)
  if ttl_ms >= 0 then redis.call('pexpire', lock, math.max(ttl_ms, lease_ms)) end
  if there ~= remaining then redis.call('hset', lock, owner, remaining) end
  return {0, remaining, now}
end

redis.call('del', lock)
if hand_over('') == 'refused' then return {2, 0, now} end
return {1, more, now}
