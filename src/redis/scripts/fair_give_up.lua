-- include: fair_queue.lua
-- fair_give_up: leaves the queue, and holds the lock no more often than before.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 owner, 3 'publish' or 'spublish',
--      4 count held before the attempt that is given up
-- Reply {1, more, now} it had been acquired meanwhile: undone | {0, more, now} it had not
--       {2, 0, now} passed on, but the publish was refused | {-3, 0, now} too late; more: see
--       fair_hand_over
-- luacheck: read globals call now now_us lock owner there open_queue
local count = tonumber(ARGV[4])
local waiters = open_queue()
if count == 0 then waiters.leave() end
if there > count and count > 0 then
  call('hset', lock, owner, count)
  return {1, 0, now}
end
local undone = 0
if there > count then
  call('del', lock)
  undone = 1
end
if call('exists', lock) == 0 and waiters.hand_over('') == 'refused' then return {2, 0, now} end
return {undone, waiters.more, now}
