-- include: survey_common.lua
-- survey_locks: which of the given hashes are locks, and which owners hold them. Changes nothing.
--
-- Reply for a lock: {ttl, holders, queue length, listeners of a release, fields and values,
--                   queued waiters}, where listeners are -1 if unknown
--       for a group of values: {ttl, listeners, values left out, -1, owner, count, ms left, ...}
-- luacheck: read globals most ask beside listeners_of time_ms read_names LATER
local FIELDS_OF_A_VALUE = 3
local MOST_VALUES = math.floor(most / 2) -- A value costs as much work as several owners.
local OWNER = '^%x+%-[%x-]+:%d+$'
local VALUE = '^' .. string.rep('[%w+/]', 22) .. '$'
local VALUE_OF_OWNER = '^' .. string.rep('[%w+/]', 22) .. ':%x+%-[%x-]+:%d+:%l+_%l+$'

-- Distinguishes locks from the hashes of other programs, which may be large.
local function is_of_lock(field, value)
  return (field == 'mode' or #field < 80 and string.find(field, '^%x+%-[%x-]+:%d')) and #value <= 20
end

local function is_of_group(field, value)
  if #field == 22 then
    return #value < 80 and string.find(field, VALUE) and string.find(value, OWNER)
  end
  return #field < 120 and #value <= 20 and string.find(field, VALUE_OF_OWNER)
end

local function are_all(is_one, fields)
  for i = 1, #fields, 2 do
    if not is_one(fields[i], fields[i + 1]) then return false end
  end
  return true
end

-- One random field. HSCAN would return all of a small hash, which is waste if it is not a lock.
local function one_of(name)
  return ask('hrandfield', name, 1, 'withvalues')
end

-- Some fields, and `mode` in any case, since it shows the kind of lock. Scans for one more than is
-- reported: `mode` may be among them.
local function some_of(name)
  local found, mode = ask('hscan', name, '0', 'count', most + 1), ask('hget', name, 'mode')
  local fields = mode and {'mode', mode} or {}
  local limit = 2 * most + #fields
  for i = 1, found and #found[2] or 0, 2 do
    if #fields < limit and found[2][i] ~= 'mode' then
      fields[#fields + 1], fields[#fields + 2] = found[2][i], found[2][i + 1]
    end
  end
  return found and fields
end

-- A small hash is reported as a whole, a large one by some fields.
local function fields_of(name, len, limit)
  if len <= limit then return ask('hgetall', name) end
  return some_of(name)
end

local function channel_of(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'mode' then return 'redisson_rwlock' end
  end
  return 'redisson_lock__channel'
end

local function read_lock(name, len, fields)
  local queue = beside('redisson_lock_queue', name)
  local queued = ask('lrange', queue, 0, most - 1) or {}
  return {
    ask('pttl', name) or -1, len, ask('llen', queue) or 0, listeners_of(channel_of(fields), name),
    fields, queued
  }, #fields / 2 + #queued
end

-- When the hold of each value ends, and how often it is held. If only some fields of the hash were
-- read, these may be missing, so they are fetched by name.
local function holds_of(name, fields)
  local values, asked = {}, {}
  for i = 1, #fields, 2 do
    if #fields[i] == 22 and #values < MOST_VALUES and is_of_group(fields[i], fields[i + 1]) then
      local owner = fields[i + 1]
      values[#values + 1] = owner
      asked[#asked + 1] = fields[i] .. ':' .. owner .. ':expire_time'
      asked[#asked + 1] = fields[i] .. ':' .. owner .. ':lock_count'
    end
  end
  return values, #asked > 0 and ask('hmget', name, unpack(asked)) or {}
end

-- An owner's remaining time and count are the maximum over its values.
local function owners_of(values, holds, now)
  local owners, order = {}, {}
  for i, owner in ipairs(values) do
    local left = (tonumber(holds[2 * i - 1] or 0) or 0) - now
    local count = tonumber(holds[2 * i] or 0) or 0
    if left > 0 and left < 1e16 and count > 0 and count < 1e5 then
      if not owners[owner] then
        owners[owner] = {left = 0, count = 0}
        order[#order + 1] = owner
      end
      local held = owners[owner]
      held.left, held.count = math.max(held.left, left), math.max(held.count, count)
    end
  end
  return owners, order
end

local function read_group(name, len, fields)
  local now = time_ms()
  if not now then return nil end
  local values, holds = holds_of(name, fields)
  local owners, order = owners_of(values, holds, now)
  local work = #fields / 2 + #values
  if #order == 0 then return nil, work end
  local ttl = ask('pttl', name) or -1
  local whole = #fields == 2 * len and #values < MOST_VALUES
  local left_out = whole and 0 or math.max(math.floor(len / FIELDS_OF_A_VALUE) - #values, 0)
  local found = {ttl, listeners_of('redisson_lock__channel', name), left_out, -1}
  for _, owner in ipairs(order) do
    local held = owners[owner]
    found[#found + 1], found[#found + 2] = owner, held.count
    found[#found + 1] = ttl >= 0 and math.min(held.left, ttl) or held.left
  end
  return found, work
end

-- One random field shows what the hash may be, before the others are read. A group has many fields:
-- those that report a value are read, the rest are skipped.
return read_names(function(name, left)
  local len = ask('hlen', name)
  local one = len and len > 0 and one_of(name)
  if not one or #one == 0 then return nil end
  local is_lock = are_all(is_of_lock, one)
  if not is_lock and not are_all(is_of_group, one) then return nil end
  if left and len > left then return LATER end
  if is_lock then
    local fields = #one == 2 * len and one or fields_of(name, len, most)
    if not fields or not are_all(is_of_lock, fields) then return nil, len end
    return read_lock(name, len, fields)
  end
  local fields = fields_of(name, len, FIELDS_OF_A_VALUE * MOST_VALUES)
  if fields then return read_group(name, len, fields) end
  return nil
end)
