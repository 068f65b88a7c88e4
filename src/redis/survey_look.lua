-- survey_look: what is at some names, for a survey of all locks. Changes nothing.
--
-- No keys, since a user who may not read one of them is to see the others.
-- ARGV 1 how many holders and how many in line are told at most, 2 how to ask for listeners,
--      3.. names
-- Reply: for each name {ttl, holders, in line, listeners of a release, fields and values, those in
--        line}, where listeners are -1 if that is not told; 0 for what is no hash, or is not told
local most = tonumber(ARGV[1])

local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end

local function beside(what, name)
  if string.find(name, '{', 1, true) then return what .. ':' .. name end
  return what .. ':{' .. name .. '}'
end

-- Whether these may be owners and counts. What others keep in hashes may be large: it is not told.
local function may_be_held(fields)
  for i = 1, #fields, 2 do
    local owner = #fields[i] < 80 and string.find(fields[i], '^%x+%-[%x-]+:%d')
    if not (owner or fields[i] == 'mode') or #fields[i + 1] > 20 then return false end
  end
  return true
end

local function some_of(name, count)
  local some = ask('hscan', name, '0', 'count', count)
  return some and may_be_held(some[2]) and some[2]
end

-- A small hash is told as a whole, a large one by some fields, which say what it is.
local function fields_of(name, len)
  local fields = some_of(name, 1)
  if not fields or #fields == 2 * len then return fields end
  if len > most then return some_of(name, most) end
  fields = ask('hgetall', name)
  return fields and may_be_held(fields) and fields
end

local function listeners_of(name, fields)
  local what = 'redisson_lock__channel'
  for i = 1, #fields, 2 do
    if fields[i] == 'mode' then what = 'redisson_rwlock' end
  end
  local answer = ask('pubsub', ARGV[2], beside(what, name))
  return answer and answer[2] or -1
end

local found = {}
for i = 3, #ARGV do
  local name = ARGV[i]
  local len = ask('hlen', name)
  local fields = len and len > 0 and fields_of(name, len)
  if fields then
    local queue = beside('redisson_lock_queue', name)
    found[#found + 1] = {
      ask('pttl', name) or -1, len, ask('llen', queue) or 0, listeners_of(name, fields), fields,
      ask('lrange', queue, 0, most - 1) or {}
    }
  else
    found[#found + 1] = 0
  end
end
return found
