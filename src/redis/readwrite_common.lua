-- include: guard.lua
-- readwrite_common.lua: what the scripts of the read/write lock share; in front of each of them.
--
-- The lock is a hash: `mode`, which is 'read' or 'write'; for each reader its name and how often it
-- reads; for a writer its name with ':write' behind it, and how often it writes. Nothing else may
-- be in it, as Redisson counts the fields. Each level of a reader has a key of its own beside the
-- hash, which expires when its lease ends: that, not the field, says if a reader is alive.
--
-- Of our readers, no level's key lasts longer than that of the level below it. So the first tells
-- how long the reader has, and nobody has to look at each level of a deep nest; and there are no
-- gaps. Of Redisson's readers any may be the longest.
-- luacheck: push ignore 211
local NOT_THIS_KIND = 'WRONGTYPE this is no read/write lock'

-- A reader's keys are this and 1, 2, ... up to its count; all in the slot of the lock.
local function hold_keys(lock, reader)
  local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return tag .. ':' .. reader .. ':rwlock_timeout:'
end

-- What is left of the longest of a reader's holds in ms; -2 if there is none.
local function longest_hold_ms(holds, count)
  local longest_ms = -2
  for i = count, 1, -1 do
    longest_ms = math.max(longest_ms, redis.call('pttl', holds .. i))
  end
  return longest_ms
end

-- What is left of the hold of level 1, which is enough to be alive; if it has run out, or somebody
-- deleted its key, of the longest.
local function first_hold_ms(holds, count)
  local left_ms = count > 0 and redis.call('pttl', holds .. 1) or -2
  return left_ms > 0 and left_ms or longest_hold_ms(holds, count)
end

-- Deletes a reader's keys, the first `count`, the next, and what follows without a gap: an acquire
-- of its own that it never heard of may have added one.
local function delete_holds(holds, count)
  local i = 1
  while redis.call('del', holds .. i) == 1 or i <= count do i = i + 1 end
end

-- Takes readers whose holds have all run out off the lock; they would keep writers out for as long
-- as others read. The most that hold_ms, one of the two above, says of the others; 0: nobody reads.
local function drop_dead_readers(lock, hold_ms)
  local fields = redis.call('hgetall', lock)
  local longest_ms = 0
  for i = 1, #fields, 2 do
    local reader, count = fields[i], tonumber(fields[i + 1])
    if count and not string.find(reader, ':write', 1, true) then
      local left_ms = hold_ms(hold_keys(lock, reader), count)
      if left_ms <= 0 then redis.call('hdel', lock, reader) end
      longest_ms = math.max(longest_ms, left_ms)
    end
  end
  return longest_ms
end
-- luacheck: pop
