-- include: fair_common.lua
-- fair_force: break the hold of the one owner the caller has seen; the first in line gets it.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 that owner, 3 'publish' or 'spublish',
--      4 where holders listen (or nothing), 5 what they are told, before the key
-- Reply {1, told + 2 * more, now} broken | {2, told, now} broken, but the publish was refused
--       {0, 0, now} that owner does not hold it | {-3, 0, now} too late
--       told is 0, or -1: the message for its holder was refused; more: see fair_hand_over
-- luacheck: read globals call now now_us lock fields open_line
if not fields[1] then return {0, 0, now} end
local line = open_line()
call('del', lock)
local told = 0
if ARGV[4] and type(redis.pcall('publish', ARGV[4], ARGV[5] .. lock)) == 'table' then
  told = -1
end
if line.hand_over('') == 'refused' then return {2, told, now} end
return {1, told + 2 * line.more, now}
