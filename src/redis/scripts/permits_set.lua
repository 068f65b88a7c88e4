-- include: permits_common.lua
-- permits_set: sets or changes the total number of permits, taken ones included.
--
-- KEYS 1 free, 2 taken
-- ARGV 1 not-after, 2 'new': only if there is no such object, 'total', or 'add', 3 the number,
--      4 'publish' or 'spublish', 5 channel
-- Reply {1, free, now} | {2, free, now} done, but the publish was refused
--       {0, free, now} 'new': there is one already | {-3, 0, now} too late
--
-- The number of free permits may become negative. The object keeps its TTL. Only 'add' is not
-- idempotent.
-- luacheck: read globals now too_late free_key taken_key integer notify
-- luacheck: globals free
if too_late then return {-3, 0, now} end

local how, number = ARGV[2], tonumber(ARGV[3])
if how == 'new' and free then return {0, free, now} end

local more = number
if how == 'total' and free then
  more = number - free - redis.call('zcard', taken_key)
end
if not free then
  redis.call('set', free_key, integer(number))
  free = number
elseif more ~= 0 then
  free = redis.call('incrby', free_key, integer(more))
end
local published = more <= 0 or notify(ARGV[4], ARGV[5], number)
return {published and 1 or 2, free, now}
