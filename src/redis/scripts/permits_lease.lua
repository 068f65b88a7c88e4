-- include: permits_common.lua
-- permits_lease: the remaining time of a permit's lease.
--
-- KEYS 1 free, 2 taken   ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel, 4 the id
-- Reply {1, ms, now}, -1 if it never ends | {0, 0, now} no such permit, or its lease has ended
--       {-3, 0, now} too late
-- luacheck: read globals now too_late taken_key NEVER RECLAIM_MAX reclaim notify free
if too_late then return {-3, 0, now} end

if reclaim(RECLAIM_MAX) > 0 then notify(ARGV[2], ARGV[3], free or 0) end
local score = tonumber(redis.call('zscore', taken_key, ARGV[4]) or 0)
if score <= now then return {0, 0, now} end
if score >= tonumber(NEVER) then return {1, -1, now} end
return {1, score - now, now}
