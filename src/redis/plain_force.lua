-- include: guard.lua
-- plain_force: break the hold of the one owner the caller has seen, however often it re-entered.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 that owner, 3 'publish' or 'spublish', 4 channel,
--                         5 where holders listen (or nothing), 6 what they are told,
--                         before the key
-- Reply {1, told, now} broken | {2, told, now} broken, but the publish was refused
--       {0, 0, now} that owner does not hold it | {-3, 0, now} too late
--       told is 0, or -1: the message for its holder was refused
--
-- It names an owner because a blind one, sent twice, could break the hold of whoever came next. The
-- holder is told first.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local lock, owner = KEYS[1], ARGV[2]
local fields = redis.call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
if not fields[1] then return {0, 0, now} end

redis.call('del', lock)
local told = 0
if ARGV[5] and type(redis.pcall('publish', ARGV[5], ARGV[6] .. lock)) == 'table' then
  told = -1
end
if type(redis.pcall(ARGV[3], ARGV[4], '0')) == 'table' then return {2, told, now} end
return {1, told, now}
