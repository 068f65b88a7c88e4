-- include: guard.lua
-- group_common.lua: shared by the scripts of a group of values; included in front of each of them.
--
-- A group is a Redis hash. The field f of a value is a digest of its bytes. While owner O holds the
-- value, there are
--   f = O   f:O:expire_time = when its lease ends, in ms   f:O:lock_count = how often O holds it
-- The key expires a little later than the last lease. A lease that has ended by this server's clock
-- holds nothing, though its fields stay until the value is acquired or the key expires. Redisson
-- uses its own clock instead, and leaves the last two fields behind when it takes a value over.
-- luacheck: globals now
-- luacheck: read globals COUNT
-- luacheck: push ignore 211
now = now - now % 1 -- in whole ms
local NOT_THIS_KIND = redis.error_reply('WRONGTYPE this is not a group of values')
local NO_NUMBER = redis.error_reply('WRONGTYPE a time or a count is not a number')
local BAD_LEASE = redis.error_reply('ERR the lease must be 1 ms to 10^15 ms')

local function is_lease(ms)
  return ms >= 1 and ms <= 1e15
end

local function integer(number)
  return string.format('%.0f', number)
end

-- Parses a time that any client may have written; nil: not an integer that Lua represents exactly.
local function time_of(text)
  local ms = string.find(text, '^-?%d+$') and tonumber(text)
  return ms and ms <= 1e16 and ms >= -1e16 and ms or nil
end

local function ends_of(field, owner)
  return field .. ':' .. owner .. ':expire_time'
end

local function count_of(field, owner)
  return field .. ':' .. owner .. ':lock_count'
end

-- When the hold of another owner on a value ends; 0 if it has no end: Redisson, too, treats that
-- value as free. nil: not a number.
local function end_of_other(group, field, other)
  return time_of(redis.call('hget', group, ends_of(field, other)) or '0')
end

-- One value, as stored. `ours`: this owner holds it, and its lease has not ended.
local function value_of(group, owner, field, holder, ends, count)
  local value = {field = field, holder = holder, count = 0}
  if not holder then return value end
  if holder == owner then
    value.ends = time_of(ends or '0')
    value.count = string.find(count or '0', COUNT) and tonumber(count or '0')
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
local function read_values(group, owner, fields)
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

-- How many of the values are held, and when the last of them will be free; 0 if all are free now.
local function held_until(values)
  local held, last = 0, 0
  for _, value in ipairs(values) do
    if value.held then
      held, last = held + 1, math.max(last, value.ends)
    end
  end
  return held, last
end

-- Deletes all fields of this owner for these values. True if it held any of them.
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

-- A waiter attempts in the millisecond in which the lease ends. If the key expired in the same
-- millisecond, Redisson would take the values over without raising the TTL of 0, and lose them with
-- the key.
local SPARE_MS = 100

local function raise_ttl(group, lease_ms)
  local ttl_ms, wanted_ms = redis.call('pttl', group), lease_ms + SPARE_MS
  if ttl_ms >= 0 then -- Always written, as in plain_acquire.
    redis.call('pexpire', group, integer(math.max(ttl_ms, wanted_ms)))
  end
end
-- luacheck: pop
