-- string_break: break the hold of the token that the caller saw.
--
-- KEYS 1 lock   ARGV 1 token, 2 'publish' or 'spublish', 3 channel,
--                    4 the break channel of holders (or nothing), 5 the message, before the key
-- Reply {1, holder} broken | {2, holder} broken, but the publish was refused
--       {0, 0} it does not have this token
--       holder is 0, or -1: the publish to the holder was refused
--
-- It names a token: a break without one, sent twice, could break the hold of the next owner. Only
-- if tokens are not unique, as some other libraries' are, it can.
if redis.call('get', KEYS[1]) ~= ARGV[1] then return {0, 0} end
redis.call('del', KEYS[1])
local holder_status = 0
if ARGV[4] and type(redis.pcall('publish', ARGV[4], ARGV[5] .. KEYS[1])) == 'table' then
  holder_status = -1
end
if type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, holder_status} end
return {1, holder_status}
