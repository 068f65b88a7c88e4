-- survey_common.lua: what the scripts of a survey share; in front of each of them.
--
-- No keys, since a user who may not read one of them is to see the others.
-- ARGV 1 how many holders of one name are told at most, 2 how to ask for listeners, 3.. names
-- Reply: for the first names, as many as can be looked at in a moment, each what was found;
--        0: it is none of ours, -1: it may not be read
-- luacheck: push ignore 211
local FIRST_NAME = 3
local NONE, UNREAD = 0, -1
local LATER = {}
local WORK_OF_A_NAME = 2 -- As that of so many owners.
local most = tonumber(ARGV[1])
local refused = false -- Since that was last looked at.

-- nil: there is nothing of that type, or it may not be read.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  refused = refused or not string.find(reply.err, 'WRONGTYPE', 1, true)
  return nil
end

local function beside(what, name)
  if string.find(name, '{', 1, true) then return what .. ':' .. name end
  return what .. ':{' .. name .. '}'
end

-- Who waits is on the channel of its kind alone. Who only wants to hear, of whatever there is, is
-- on all of them: on one that nobody waits on, too, and does not count.
local function listeners_of(what, name)
  local other = what == 'redisson_sc' and 'redisson_rwlock' or 'redisson_sc'
  local answer = ask('pubsub', ARGV[2], beside(what, name), beside(other, name))
  return answer and math.max(answer[2] - answer[4], 0) or -1
end

-- In whole ms; nil if this user may not ask.
local function time_ms()
  local time = ask('time')
  return time and time[1] * 1000 + math.floor(time[2] / 1000)
end

-- `look` answers what is at a name, or nil, and how many owners and fields it has read; LATER if
-- there are more of them than it may still read. So what is large is looked at by itself, however
-- many names there are, and those behind it by the next script.
local function look_at_names(look)
  local found, left = {}, nil
  for i = FIRST_NAME, #ARGV do
    refused = false
    local what, work = look(ARGV[i], left)
    if what == LATER then break end
    found[#found + 1] = what or refused and UNREAD or NONE
    left = (left or most) - WORK_OF_A_NAME - (work or 0)
    if left <= 0 then break end
  end
  return found
end
-- luacheck: pop
