-- include: permits_common.lua
-- permits_delete: delete the whole object, with the permits that are taken.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after, 2 where holders listen (or nothing), 3 what they are
--                             told, before the key
-- Reply {1, told, now} | {0, 0, now} there was nothing | {-3, 0, now} too late
--       told is 0, or -1: the message for its holders was refused
-- luacheck: read globals now too_late free_key taken_key
if too_late then return {-3, 0, now} end

redis.call('zcard', taken_key) -- Fails before anything is done if that is something else.
if redis.call('del', free_key, taken_key) == 0 then return {0, 0, now} end
local told = 0
if ARGV[2] and type(redis.pcall('publish', ARGV[2], ARGV[3] .. free_key)) == 'table' then
  told = -1
end
return {1, told, now}
