-- include: guard.lua
-- plain_break: breaks the hold of the owner that the caller saw, however often it re-entered.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 that owner, 3 'publish' or 'spublish', 4 channel,
--                         5 the break channel of holders (or nothing), 6 the message,
--                         before the key
-- Reply {1, holder, now} broken | {2, holder, now} broken, but the publish was refused
--       {0, 0, now} that owner does not hold it | {-3, 0, now} too late
--       holder is 0, or -1: the publish to the holder was refused
--
-- It names an owner: a break without one, sent twice, could break the hold of the next owner. The
-- holder is notified first.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local lock, owner = KEYS[1], ARGV[2]
local fields = redis.call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
if not fields[1] then return {0, 0, now} end

redis.call('del', lock)
local holder_status = 0
if ARGV[5] and type(redis.pcall('publish', ARGV[5], ARGV[6] .. lock)) == 'table' then
  holder_status = -1
end
if type(redis.pcall(ARGV[3], ARGV[4], '0')) == 'table' then return {2, holder_status, now} end
return {1, holder_status, now}
