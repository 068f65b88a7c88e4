-- survey_common.lua: shared by the scripts of a survey; included in front of each of them.
--
-- No KEYS: a user who may not read one of the names must still see the others.
-- ARGV 1 most holders reported per name, 2 the PUBSUB subcommand that counts listeners, 3.. names
-- Reply: one entry for each of the first names, as many as can be read in a moment;
--        0: not ours, -1: this user may not read it
-- luacheck: push ignore 211
local FIRST_NAME = 3
local NONE, UNREAD = 0, -1
local LATER = {}
local WORK_OF_A_NAME = 2 -- in owners
local most = tonumber(ARGV[1])
local refused = false -- whether a command on the current name was refused

-- nil: nothing of that type exists, or this user may not read it.
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

-- A waiter subscribes to the channel of its kind only; a name listener subscribes to those of all
-- kinds. So the subscribers of another kind's channel are listeners, and are subtracted.
local function listeners_of(what, name)
  local other = what == 'redisson_sc' and 'redisson_rwlock' or 'redisson_sc'
  local answer = ask('pubsub', ARGV[2], beside(what, name), beside(other, name))
  return answer and math.max(answer[2] - answer[4], 0) or -1
end

-- In whole ms; nil if this user may not run TIME.
local function time_ms()
  local time = ask('time')
  return time and time[1] * 1000 + math.floor(time[2] / 1000)
end

-- `read` returns what it found at a name, or nil, and how many owners and fields it has read; LATER
-- if that would exceed what is left of the limit. So a large key is read alone, in a script of its
-- own, and the names behind it in the next.
local function read_names(read)
  local found, left = {}, nil
  for i = FIRST_NAME, #ARGV do
    refused = false
    local what, work = read(ARGV[i], left)
    if what == LATER then break end
    found[#found + 1] = what or refused and UNREAD or NONE
    left = (left or most) - WORK_OF_A_NAME - (work or 0)
    if left <= 0 then break end
  end
  return found
end
-- luacheck: pop
