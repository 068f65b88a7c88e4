-- include: permits_common.lua
-- permits_count: how many permits are free, and how many are taken.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel
-- Reply {1, free, taken, now} | {0, 0, taken, now} there is no such object
--       {-3, 0, 0, now} too late
--
-- Permits whose lease has ended count as free, even if not reclaimed yet.
-- luacheck: read globals now too_late taken_key RECLAIM_MAX count_ended reclaim notify free
if too_late then return {-3, 0, 0, now} end

if reclaim(RECLAIM_MAX) > 0 then notify(ARGV[2], ARGV[3], free or 0) end
local ended = count_ended()
local taken = redis.call('zcard', taken_key) - ended
if not free then return {0, 0, taken, now} end
return {1, free + ended, taken, now}
