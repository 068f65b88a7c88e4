-- include: fair_queue.lua
-- fair_hand_over: continues the hand-over of a release, a break or a give-up that found too many
-- dead waiters at the head of the queue.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 any owner, 3 'publish' or 'spublish'
-- Reply {1, more, now}: more is 1 if there may be more of them; 0: a waiter holds the lock or was
--       notified
--       {2, 0, now} the publish was refused | {-3, 0, now} too late
-- luacheck: read globals call now now_us lock open_queue
local waiters = open_queue()
if call('exists', lock) == 0 and waiters.hand_over('') == 'refused' then return {2, 0, now} end
return {1, waiters.more, now}
