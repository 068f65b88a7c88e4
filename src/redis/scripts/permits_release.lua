-- include: permits_common.lua
-- permits_release: gives permits back.
--
-- KEYS 1 free, 2 taken
-- ARGV 1 not-after, 2 'all': all or none, and none if a lease has ended; 'any': those that exist,
--      3 'publish' or 'spublish', 4 channel, 5.. the ids
-- Reply {1, how many, now} released | {2, how many, now} released, but the publish was refused
--       {0, how many, now} 'any': released, but this many leases had ended before
--       {-1, how many, now} this many do not exist ('any': none exists), nothing changed
--       {-2, how many, now} 'all': this many leases had ended, nothing changed
--       {-3, 0, now} too late
--
-- A second copy finds nothing, which tells its sender that the first has run.
-- luacheck: read globals now too_late taken_key RECLAIM_MAX give_back reclaim notify
-- luacheck: globals free
if too_late then return {-3, 0, now} end

local FIRST_ID = 5
local all = ARGV[2] == 'all'
local there, missing, ended = {}, 0, 0
for i = FIRST_ID, #ARGV do
  local ends = redis.call('zscore', taken_key, ARGV[i])
  if not ends then
    missing = missing + 1
  else
    there[#there + 1] = ARGV[i]
    if tonumber(ends) <= now then ended = ended + 1 end
  end
end
if #there == 0 or (all and missing > 0) then return {-1, missing, now} end
if all and ended > 0 then return {-2, ended, now} end

local reclaimed = all and reclaim(RECLAIM_MAX) or 0
local released = 0
for _, id in ipairs(there) do released = released + redis.call('zrem', taken_key, id) end
give_back(released)
local published = notify(ARGV[3], ARGV[4], (all and reclaimed == 0) and released or free or 0)
if ended > 0 then return {0, ended, now} end
return {published and 1 or 2, released, now}
