-- include: permits_common.lua
-- permits_acquire: takes permits, all or none, under ids that the caller has drawn.
--
-- KEYS 1 free, 2 taken
-- ARGV 1 not-after, 2 lease ms (-1: none), 3 'publish' or 'spublish', 4 channel, 5.. the ids
-- Reply {1, how many, now} taken | {0, ms, now} too few: the time until enough leases have ended,
--       -1 if unknown | {-3, 0, now} too late
--
-- Ids that exist already are from an earlier copy: they do not count twice, and their lease is
-- raised, never shortened.
-- luacheck: read globals now too_late free_key taken_key NEVER RECLAIM_MAX end_of give_back
-- luacheck: read globals reclaim notify
-- luacheck: globals free
if too_late then return {-3, 0, now} end

local FIRST_ID = 5
local wanted = #ARGV - FIRST_ID + 1
local ends = end_of(ARGV[2])
if not ends then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

-- Writes the lease of all ids, in one command: they are at most a thousand, and Lua's unpack() can
-- do several thousand. The set expires with the object.
local function write_leases()
  local leases = {}
  for i = FIRST_ID, #ARGV do
    leases[#leases + 1] = ends
    leases[#leases + 1] = ARGV[i]
  end
  redis.call('zadd', taken_key, 'gt', unpack(leases))
  local ttl_ms = redis.call('pttl', free_key)
  if ttl_ms > 0 then
    redis.call('pexpire', taken_key, ttl_ms)
  elseif ttl_ms == -1 then
    redis.call('persist', taken_key)
  end
end

-- Which ids exist already? If only some do, leases have ended since the earlier copy. Then that
-- acquire is over, and its remaining permits are given back first.
local there = {}
for i = FIRST_ID, #ARGV do
  if redis.call('zscore', taken_key, ARGV[i]) then there[#there + 1] = ARGV[i] end
end
if #there == wanted then
  write_leases()
  return {1, wanted, now}
end
for _, id in ipairs(there) do give_back(redis.call('zrem', taken_key, id)) end

local reclaimed = #there + reclaim(math.max(wanted, RECLAIM_MAX))
if free and free >= wanted then
  write_leases()
  local left = redis.pcall('decrby', free_key, wanted)
  if type(left) == 'table' then -- Permits never subtracted must not be given back.
    for i = FIRST_ID, #ARGV do redis.call('zrem', taken_key, ARGV[i]) end
    return left
  end
  free = left
  if reclaimed > 0 then notify(ARGV[3], ARGV[4], free) end
  return {1, wanted, now}
end

-- Not enough. How many running leases must end before there are?
if reclaimed > 0 then notify(ARGV[3], ARGV[4], free or 0) end
if not free then return {0, -1, now} end
local last = redis.call('zrange', taken_key, wanted - free - 1, wanted - free - 1, 'withscores')
if not last[2] or tonumber(last[2]) >= tonumber(NEVER) then return {0, -1, now} end
return {0, math.max(tonumber(last[2]) - now, 0), now}
