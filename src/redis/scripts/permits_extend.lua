-- include: permits_common.lua
-- permits_extend: sets the lease of a permit, counted from now; it may be shorter than before.
--
-- KEYS 1 free, 2 taken
-- ARGV 1 not-after, 2 lease ms (-1: none), 3 'publish' or 'spublish', 4 channel, 5 the id
-- Reply {1, 0, now} | {0, 0, now} no such permit, or its lease has ended | {-3, 0, now} too late
-- luacheck: read globals now too_late taken_key RECLAIM_MAX end_of reclaim notify free
if too_late then return {-3, 0, now} end

local id = ARGV[5]
local ends = end_of(ARGV[2])
if not ends then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

if reclaim(RECLAIM_MAX) > 0 then notify(ARGV[3], ARGV[4], free or 0) end
local score = redis.call('zscore', taken_key, id)
if not score or tonumber(score) <= now then return {0, 0, now} end
redis.call('zremrangebyrank', taken_key, 1, 0) -- As in permits_renew: the server may lack memory.
redis.call('zadd', taken_key, 'xx', ends, id)
return {1, 0, now}
