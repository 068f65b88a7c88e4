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

local function fields_of(name, len)
  if len <= most then return ask('hgetall', name) end
  local some = ask('hscan', name, '0', 'count', most)
  return some and some[2]
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
