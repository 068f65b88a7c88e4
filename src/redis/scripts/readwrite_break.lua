-- include: readwrite_common.lua
-- readwrite_break: breaks all holds on one side of the lock, if the owner that the caller saw still
-- holds it.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 the field that was seen, 3 'read' or 'write',
--                         4 'publish' or 'spublish', 5 channel,
--                         6 the break channel of holders (or nothing), 7 the message,
--                         before the key
-- Reply {1, holder, now} broken | {2, holder, now} broken, but the publish was refused
--       {0, 0, now} that owner does not hold this side | {-3, 0, now} too late
--       holder is 0, or -1: the publish to the holders was refused
--
-- It names an owner: a break without one, sent twice, could break the hold of the next owner. A
-- writer's own reads end with it. The keys of readers are left to expire.
-- luacheck: read globals now too_late NOT_THIS_KIND
if too_late then return {-3, 0, now} end

local lock, side = KEYS[1], ARGV[3]
local fields = redis.call('hmget', lock, 'mode', ARGV[2])
if not fields[1] and redis.call('exists', lock) == 1 then
  return redis.error_reply(NOT_THIS_KIND)
end
if fields[1] ~= side or not fields[2] then return {0, 0, now} end

redis.call('del', lock)
local holder_status = 0
if ARGV[6] and type(redis.pcall('publish', ARGV[6], ARGV[7] .. lock)) == 'table' then
  holder_status = -1
end
local message = side == 'write' and '1' or '0'
if type(redis.pcall(ARGV[4], ARGV[5], message)) == 'table' then return {2, holder_status, now} end
return {1, holder_status, now}
