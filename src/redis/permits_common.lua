-- include: guard.lua
-- permits_common.lua: what the scripts of permits with leases share; in front of each of them.
--
-- KEYS 1 how many are free: a number, negative if more are taken than there are
--      2 those that are taken: a sorted set of ids, 16 bytes each, with the time each lease ends
--
-- A lease ends by this server's clock and nobody else's. One that has ended counts as free, but
-- stays in the set until somebody takes it back; no call takes back more than it can in a moment.
-- luacheck: globals now
-- luacheck: push ignore 211
now = now - now % 1 -- in whole ms
local free_key, taken_key = KEYS[1], KEYS[2]
local NEVER = '922337203685477' -- when a permit without a lease ends
local RECLAIM_MAX = 500

-- How many are free, without those whose lease has ended; false if there is no such object.
local free = redis.call('get', free_key)
if free then
  if not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the number of permits is not a number')
  end
  free = tonumber(free)
end

local function integer(number)
  return string.format('%.0f', number)
end

-- When a lease that begins now ends; nil if it is none.
local function end_of(lease_ms)
  if lease_ms == '-1' then return NEVER end
  local ms = tonumber(lease_ms)
  return ms and ms >= 1 and integer(now + ms) or nil
end

local function count_ended()
  return redis.call('zcount', taken_key, '-inf', now)
end

-- Those permits are back. What belongs to an object that is gone does not bring it back.
local function give_back(number)
  if free and number > 0 then free = redis.call('incrby', free_key, number) end
end

-- Takes back permits whose lease has ended, the longest ended first, and returns how many. They
-- stand at the front of the set, so nothing has to be fetched, whatever their number.
local function reclaim(limit)
  local ended = math.min(count_ended(), limit)
  if ended > 0 then redis.call('zremrangebyrank', taken_key, 0, ended - 1) end
  give_back(ended)
  return ended
end

-- Tells those who wait to try again, if there is anything to be had: Java's listeners break on a
-- number that is not positive. False: the server did not let us.
local function tell(publish, channel, number)
  if not free or free <= 0 or number <= 0 then return true end
  return type(redis.pcall(publish, channel, integer(number))) ~= 'table'
end
-- luacheck: pop
