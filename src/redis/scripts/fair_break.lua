-- include: fair_queue.lua
-- fair_break: breaks the hold of the owner that the caller saw, and hands over to the head of the
-- queue.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 that owner, 3 'publish' or 'spublish',
--      4 the break channel of holders (or nothing), 5 the message, before the key
-- Reply {1, holder + 2 * more, now} broken | {2, holder, now} broken, but the publish was refused
--       {0, 0, now} that owner does not hold it | {-3, 0, now} too late
--       holder is 0, or -1: the publish to the holder was refused; more: see fair_hand_over
-- luacheck: read globals call now now_us lock fields open_queue
if not fields[1] then return {0, 0, now} end
local waiters = open_queue()
call('del', lock)
local holder_status = 0
if ARGV[4] and type(redis.pcall('publish', ARGV[4], ARGV[5] .. lock)) == 'table' then
  holder_status = -1
end
if waiters.hand_over('') == 'refused' then return {2, holder_status, now} end
return {1, holder_status + 2 * waiters.more, now}
