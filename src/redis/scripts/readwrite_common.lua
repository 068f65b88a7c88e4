-- include: guard.lua
-- readwrite_common.lua: shared by the scripts of the read/write lock; included in front of each.
--
-- The lock is a hash: `mode`, which is 'read' or 'write'; for each reader its name and how often it
-- reads; for a writer its name plus ':write', and how often it writes. Nothing else may be in it,
-- because Redisson counts the fields. Each level of a reader has a key of its own beside the hash,
-- which expires when its lease ends. That key, not the field, shows that a reader is alive.
--
-- In our readers, no level's key lasts longer than that of the level below it. So there are no
-- gaps, and level 1 alone shows how long the reader has. In Redisson's readers, any level may last
-- longest.
--
-- Scripts iterate over the levels of readers, so these are bounded: 99999 per reader (READS), and
-- LEVELS_MAX for all readers of a lock or of a renewal, which takes the server about a second.
-- Without the bound, a forged field could keep a script running with no way to stop it.
-- luacheck: push ignore 211
local NOT_THIS_KIND = 'WRONGTYPE this is not a read/write lock'
local READS, READS_MAX, LEVELS_MAX = '^%d%d?%d?%d?%d?$', 99999, 1000000
local NOT_A_COUNT = 'WRONGTYPE the hold count is not a number'

-- A reader's keys are this and 1, 2, ... up to its count; all in the slot of the lock.
local function hold_keys(lock, reader)
  local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return tag .. ':' .. reader .. ':rwlock_timeout:'
end

-- The remaining ms of a reader's longest hold; -2 if there is none.
local function longest_hold_ms(holds, count)
  local longest_ms = -2
  for i = count, 1, -1 do
    longest_ms = math.max(longest_ms, redis.call('pttl', holds .. i))
  end
  return longest_ms
end

-- The remaining ms of the hold of level 1: above 0, the reader is alive. If its key has expired or
-- was deleted, the remaining ms of the longest hold.
local function first_hold_ms(holds, count)
  local left_ms = count > 0 and redis.call('pttl', holds .. 1) or -2
  return left_ms > 0 and left_ms or longest_hold_ms(holds, count)
end

-- Deletes a reader's first `count` keys, the next one, and all that follow without a gap: an
-- acquire of its own whose reply was lost may have added one.
local function delete_holds(holds, count)
  local i = 1
  while i <= READS_MAX and (redis.call('del', holds .. i) == 1 or i <= count) do i = i + 1 end
end

-- All readers but one, each followed by how often it reads. nil: a count is not a number, or the
-- levels exceed LEVELS_MAX. Called before anything is written, so an error changes nothing.
local function readers_of(lock, but)
  local fields, readers, levels = redis.call('hgetall', lock), {}, 0
  for i = 1, #fields, 2 do
    local field, count = fields[i], fields[i + 1]
    if field ~= but and field ~= 'mode' and not string.find(field, ':write', 1, true) then
      if not string.find(count, READS) then return nil end
      levels = levels + count
      readers[#readers + 1], readers[#readers + 2] = field, tonumber(count)
    end
  end
  if levels > LEVELS_MAX then return nil end
  return readers
end

-- Leaves the lock to the remaining readers, for as long as their longest hold. Removes readers
-- whose holds have all expired: they would keep writers out for as long as others read. False:
-- there is no reader.
local function leave_to_readers(lock, readers)
  local NEAR_MS = 10 -- the lock and the keys get their leases one after the other

  -- The maximum of hold_ms, one of the two above, over all readers; 0: there is no reader.
  local function drop_dead(hold_ms)
    local longest_ms, alive = 0, {}
    for i = 1, #readers, 2 do
      local left_ms = hold_ms(hold_keys(lock, readers[i]), readers[i + 1])
      if left_ms <= 0 then
        redis.call('hdel', lock, readers[i])
      else
        alive[#alive + 1], alive[#alive + 2] = readers[i], readers[i + 1]
        longest_ms = math.max(longest_ms, left_ms)
      end
    end
    readers = alive
    return longest_ms
  end

  -- If the lock's own TTL agrees with the first levels, the others need not be read.
  local longest_ms = drop_dead(first_hold_ms)
  local ttl_ms = redis.call('pttl', lock)
  if longest_ms > 0 and ttl_ms ~= -1 and math.abs(ttl_ms - longest_ms) > NEAR_MS then
    longest_ms = drop_dead(longest_hold_ms)
    redis.call('pexpire', lock, longest_ms)
  end
  return longest_ms > 0
end
-- luacheck: pop
