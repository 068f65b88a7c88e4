-- include: permits_common.lua
-- permits_expire: sets the TTL of the whole object.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after, 2 ms
-- Reply {1, 0, now} | {0, 0, now} there is no such object | {-3, 0, now} too late
-- luacheck: read globals now too_late free_key taken_key free
if too_late then return {-3, 0, now} end

if not free then return {0, 0, now} end
redis.call('zcard', taken_key) -- Fails on a wrong type before anything is changed.
redis.call('pexpire', free_key, ARGV[2])
redis.call('pexpire', taken_key, ARGV[2])
return {1, 0, now}
