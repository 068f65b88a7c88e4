-- string_release: free a string lock that has this token, and wake a waiter.
--
-- KEYS 1 lock   ARGV 1 token, 2 channel, 3 'spublish', or nothing: 'publish'
-- Reply how many subscribers got the message, from 0 on: released
--       -1 it does not have this token | -2 released, but the publish was refused
--
-- A token is never used again, so a late copy finds it gone and does nothing: no `not-after`.
local redis, lock = redis, KEYS[1]
if redis.call('get', lock) ~= ARGV[1] then return -1 end
redis.call('del', lock)
return tonumber(redis.pcall(ARGV[3] or 'publish', ARGV[2], '0')) or -2
