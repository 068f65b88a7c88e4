-- include: permits_common.lua
-- permits_delete: deletes the whole object, including taken permits.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after, 2 the break channel of holders (or nothing), 3 the
--                             message, before the key
-- Reply {1, holder, now} | {0, 0, now} there was nothing | {-3, 0, now} too late
--       holder is 0, or -1: the publish to the holders was refused
-- luacheck: read globals now too_late free_key taken_key
if too_late then return {-3, 0, now} end

redis.call('zcard', taken_key) -- Fails on a wrong type before anything is changed.
if redis.call('del', free_key, taken_key) == 0 then return {0, 0, now} end
local holder_status = 0
if ARGV[2] and type(redis.pcall('publish', ARGV[2], ARGV[3] .. free_key)) == 'table' then
  holder_status = -1
end
return {1, holder_status, now}
