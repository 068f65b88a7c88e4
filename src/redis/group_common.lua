-- include: guard.lua
-- group_common.lua: what the scripts of a group of values share; in front of each of them.
--
-- A group is a hash. A value of it is known by a field, a hash of the value's bytes; while owner O
-- holds the value with field f there are
--   f = O   f:O:expire_time = when its lease ends, in ms   f:O:lock_count = how often O holds it
-- The key expires a little later than the last lease. A lease that has ended by this server's clock
-- holds nothing, though its fields stay until somebody takes the value or the key goes. Redisson
-- looks at its own clock instead, and leaves the last two fields behind when it takes a value over.
-- luacheck: globals now
-- luacheck: push ignore 211
now = now - now % 1 -- in whole ms
local NOT_THIS_KIND = redis.error_reply('WRONGTYPE this is no group of values')
local NO_NUMBER = redis.error_reply('WRONGTYPE a time or a count is not a number')

local BAD_LEASE = redis.error_reply('ERR the lease must be 1 ms to 10^15 ms')

local function is_lease(ms)
  return ms >= 1 and ms <= 1e15
end

local function integer(number)
  return string.format('%.0f', number)
end

local function ends_of(field, owner)
  return field .. ':' .. owner .. ':expire_time'
end

local function count_of(field, owner)
  return field .. ':' .. owner .. ':lock_count'
end

-- When the hold of another owner on a value ends; 0 if nothing says so: then Redisson, too, takes
-- it for free. nil: not a number.
local function end_of_other(group, field, other)
  return tonumber(redis.call('hget', group, ends_of(field, other)) or 0)
end

-- One value, as it is there. `ours`: this owner holds it, and its lease has not ended.
local function value_of(group, owner, field, holder, ends, count)
  local value = {field = field, holder = holder, count = 0}
  if not holder then return value end
  if holder == owner then
    value.ends, value.count = tonumber(ends or 0), tonumber(count or 0)
  else
    value.ends = end_of_other(group, field, holder)
  end
  if not value.ends or not value.count then return nil end
  value.held = value.ends > now
  value.ours = value.held and holder == owner and value.count > 0
  return value
end

-- The values with these fields, and how many fields the hash has; or nil and an error. A lock of
-- another kind has a mode, or is a single field.
local function look(group, owner, fields)
  local size = redis.pcall('hlen', group)
  if type(size) == 'table' then return nil, size end
  local asked = {'mode'}
  for i, field in ipairs(fields) do
    asked[3 * i - 1] = field
    asked[3 * i], asked[3 * i + 1] = ends_of(field, owner), count_of(field, owner)
  end
  local found = redis.call('hmget', group, unpack(asked))
  if found[1] or size == 1 then return nil, NOT_THIS_KIND end
  local values = {}
  for i, field in ipairs(fields) do
    local at = 3 * i - 1
    values[i] = value_of(group, owner, field, found[at], found[at + 1], found[at + 2])
    if not values[i] then return nil, NO_NUMBER end
  end
  return values, size
end

local function all_ours(values)
  for _, value in ipairs(values) do
    if not value.ours then return false end
  end
  return true
end

-- The values held at all; when the last of them will be free, and 0 if all are.
local function held_until(values)
  local held, last = 0, 0
  for _, value in ipairs(values) do
    if value.held then
      held, last = held + 1, math.max(last, value.ends)
    end
  end
  return held, last
end

-- Takes whatever this owner has on these values off the group. True if it was the holder of any.
local function drop(group, owner, values)
  local fields, held = {}, false
  for _, value in ipairs(values) do
    fields[#fields + 1] = ends_of(value.field, owner)
    fields[#fields + 1] = count_of(value.field, owner)
    if value.holder == owner then
      fields[#fields + 1] = value.field
      held = true
    end
  end
  redis.call('hdel', group, unpack(fields))
  return held
end

-- The fields from the given argument on.
local function fields_from(first)
  local fields = {}
  for i = first, #ARGV do fields[#fields + 1] = ARGV[i] end
  return fields
end

-- Whoever waits comes back in the millisecond in which the lease ends. If the key ended in the same
-- one, Redisson would take the values over without lengthening a TTL of 0, and lose them with the
-- key.
local SPARE_MS = 100

local function raise_ttl(group, lease_ms)
  local ttl_ms, wanted_ms = redis.call('pttl', group), lease_ms + SPARE_MS
  if ttl_ms >= 0 then -- Written in any case, as in plain_acquire.
    redis.call('pexpire', group, integer(math.max(ttl_ms, wanted_ms)))
  end
end
-- luacheck: pop
