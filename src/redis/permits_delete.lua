-- include: permits_common.lua
-- permits_delete: delete the whole object, with the permits that are taken.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after
-- Reply {1, 0, now} | {0, 0, now} there was nothing | {-3, 0, now} too late
-- luacheck: read globals now too_late free_key taken_key
if too_late then return {-3, 0, now} end

redis.call('zcard', taken_key) -- Fails before anything is done if that is something else.
return {math.min(redis.call('del', free_key, taken_key), 1), 0, now}
