-- include: guard.lua
-- permits_common.lua: shared by the scripts of permits with leases; included in front of each.
--
-- KEYS 1 how many are free: a number, negative if more are taken than exist
--      2 the taken permits: a sorted set of ids, 16 bytes each, with the time each lease ends
--
-- Only this server's clock ends a lease. A permit whose lease has ended counts as free, but stays
-- in the set until a script reclaims it. Each run reclaims a limited number, to stay short.
-- luacheck: globals now
-- luacheck: push ignore 211
now = now - now % 1 -- in whole ms
local free_key, taken_key = KEYS[1], KEYS[2]
local NEVER = '922337203685477' -- when a permit without a lease ends
local RECLAIM_MAX = 500

-- How many are free, not counting ended leases; false if the object does not exist.
local free = redis.call('get', free_key)
if free then
  if #free > 16 or not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the number of permits is not a number')
  end
  free = tonumber(free)
end

local function integer(number)
  return string.format('%.0f', number)
end

-- When a lease that begins now ends; nil if it is not a valid lease.
local function end_of(lease_ms)
  if lease_ms == '-1' then return NEVER end
  local ms = tonumber(lease_ms)
  return ms and ms >= 1 and integer(now + ms) or nil
end

local function count_ended()
  return redis.call('zcount', taken_key, '-inf', now)
end

-- Adds permits that were given back. Does not create an object that is gone.
local function give_back(number)
  if free and number > 0 then free = redis.call('incrby', free_key, number) end
end

-- Reclaims permits whose lease has ended, the earliest first, and returns how many. They are first
-- in the set, so no ids have to be fetched.
local function reclaim(limit)
  local ended = math.min(count_ended(), limit)
  if ended > 0 then redis.call('zremrangebyrank', taken_key, 0, ended - 1) end
  give_back(ended)
  return ended
end

-- Notifies waiters, if a permit is free: Java's listeners fail on a number that is not positive.
-- False: the server refused the publish.
local function notify(publish, channel, number)
  if not free or free <= 0 or number <= 0 then return true end
  return type(redis.pcall(publish, channel, integer(number))) ~= 'table'
end
-- luacheck: pop
