-- string_release: free a string lock that has this token, and wake a waiter.
--
-- KEYS 1 lock   ARGV 1 token, 2 'publish' or 'spublish', 3 channel
-- Reply how many subscribers got the message, from 0 on: released
--       -1 it does not have this token | -2 released, but the publish was refused
--
-- A token is never used again, so a late copy finds it gone and does nothing: no `not-after`.
if redis.call('get', KEYS[1]) ~= ARGV[1] then return -1 end
redis.call('del', KEYS[1])
local notified = redis.pcall(ARGV[2], ARGV[3], '0')
if type(notified) == 'table' then return -2 end
return notified
