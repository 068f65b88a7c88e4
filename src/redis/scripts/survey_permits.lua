-- include: survey_common.lua
-- survey_permits: which of the given names are permits with leases, and who holds them. Changes
-- nothing.
--
-- Reply for permits: {ms until all leases have ended, listeners, left out, free, id, 1, ms left,
--                    ...}, where a time is -1 if it never ends; the earliest ends are reported
--
-- Permits are two keys: a number, and a sorted set of ids by times. A permit whose lease has ended
-- counts as free, though it stays in the set until a script reclaims it.
-- luacheck: read globals most ask listeners_of time_ms read_names LATER
-- luacheck: globals refused
local NEVER = 922337203685477 -- when a permit without a lease ends
local now = time_ms()

local function set_of(name)
  if string.find(name, '{', 1, true) then return name .. ':timeout' end
  return '{' .. name .. '}:timeout'
end

-- The number of free permits, not counting ended leases; nil if it is not a number.
local function free_at(name)
  local len = ask('strlen', name)
  local free = len and len > 0 and len <= 16 and ask('get', name)
  return free and string.find(free, '^-?%d+$') and tonumber(free)
end

-- Ids are bytes; Redisson before 3.17 writes text.
local function is_id(member)
  return #member == 16 or #member == 32 and string.find(member, '^%x+$')
end

local function left_of(score)
  return score >= NEVER and -1 or score - now
end

-- Adds the permits to the report. False: these are not permits.
local function add_taken(set, found)
  local taken = ask('zrange', set, '(' .. now, '+inf', 'byscore', 'limit', 0, most, 'withscores')
  for i = 1, taken and #taken or 0, 2 do
    local score = tonumber(taken[i + 1])
    if not is_id(taken[i]) or not score or score < NEVER and score % 1 > 0 then return false end
    found[#found + 1], found[#found + 2], found[#found + 3] = taken[i], 1, left_of(score)
  end
  return taken and #taken > 0
end

local function last_end(set)
  local last = ask('zrange', set, -1, -1, 'withscores')
  return last and last[2] and left_of(tonumber(last[2])) or -1
end

return read_names(function(name, left)
  if not now then
    refused = true
    return nil
  end
  local set, free = set_of(name), free_at(name)
  local count = free and ask('zcount', set, '(' .. now, '+inf') or 0
  if count == 0 then return nil end
  if left and math.min(count, most) > left then return LATER end
  local ended = ask('zcount', set, '-inf', now) or 0
  local found = {
    last_end(set), listeners_of('redisson_sc', name), math.max(count - most, 0),
    math.max(free + ended, 0)
  }
  if not add_taken(set, found) then return nil end
  return found, math.min(count, most)
end)
