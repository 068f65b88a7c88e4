-- include: survey_common.lua
-- survey_permits: which of some names are permits with leases, and who has them. Changes nothing.
--
-- Reply for permits: {ms until all leases have ended, listeners, left out, free, id, 1, ms left,
--                    ...}, where a time is -1 if it never ends; those that end first are told
--
-- Two keys of such names are permits: a number, and a sorted set of ids by times. What has ended
-- holds nothing, though it stays in the set until somebody takes it back.
-- luacheck: read globals most ask listeners_of time_ms look_at_names LATER
-- luacheck: globals refused
local NEVER = 922337203685477 -- when a permit without a lease ends
local now = time_ms()

local function set_of(name)
  if string.find(name, '{', 1, true) then return name .. ':timeout' end
  return '{' .. name .. '}:timeout'
end

-- The number that is free, without those that have ended; nil if it is no number.
local function free_at(name)
  local len = ask('strlen', name)
  local free = len and len > 0 and len <= 20 and ask('get', name)
  return free and string.find(free, '^-?%d+$') and tonumber(free)
end

-- Ids are bytes; of Redisson before 3.17 they are text.
local function is_id(member)
  return #member == 16 or #member == 32 and string.find(member, '^%x+$')
end

local function left_of(score)
  return score >= NEVER and -1 or score - now
end

-- Adds those that are told. False: these are no permits.
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

return look_at_names(function(name, left)
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
