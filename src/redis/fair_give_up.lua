-- include: fair_common.lua
-- fair_give_up: leave the line, and hold the lock no more often than before.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish', 4 channel prefix,
--      5 count held before the attempt that is given up
-- Reply {1, more, now} it had been acquired meanwhile: undone | {0, more, now} it had not
--       {2, 0, now} passed on, but the publish was refused | {-3, 0, now} too late; more: see
--       fair_hand_over
-- luacheck: read globals now lock owner there leave_line hand_over more
local count = tonumber(ARGV[5])
if count == 0 then leave_line() end
if there > count and count > 0 then
  redis.call('hset', lock, owner, count)
  return {1, 0, now}
end
local undone = 0
if there > count then
  redis.call('del', lock)
  undone = 1
end
if redis.call('exists', lock) == 0 and hand_over('') == 'refused' then return {2, 0, now} end
return {undone, more, now}
