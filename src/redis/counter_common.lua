-- include: guard.lua
-- counter_common.lua: what the scripts of semaphores and latches share; in front of each of them.
--
-- KEYS 1 the number
--      2 where the permits with leases of that name would be; left out where it is in another slot
--
-- A semaphore, a latch and the free ones of permits with leases look the same: a number in a
-- string. But permits that are taken are seen in a sorted set beside it, and then the name is not
-- ours to touch. If the number is gone and the set is not, it is the same: their holders may still
-- be at work, and what is left over would be taken for the new number's.
--
-- KEYS 3 of a latch: the proof that it was open; left out with the second
--
-- Whoever waits for a latch may look when it has been closed anew already, and messages prove
-- nothing: a channel is shared by all databases, and anybody can publish. So whatever opens or
-- closes a latch leaves a number here that is larger than the last, and who finds another number
-- than at its first look knows that the latch was open in between. It lasts much longer than
-- anybody sleeps between two looks. Without the right to write it, waiters have to see the latch
-- open.
-- luacheck: read globals now too_late now_us
if too_late then return {-3, 0, now} end

local there = redis.call('get', KEYS[1])
if there and not there:find('^-?%d+$') then
  return redis.error_reply('WRONGTYPE what has this name is not a number')
end
if KEYS[2] and redis.call('type', KEYS[2]).ok == 'zset' then
  return redis.error_reply('WRONGTYPE permits with leases are ' .. (there and
    'taken under this name' or 'left over under this name: delete them first ({name}:timeout)'))
end

-- luacheck: push ignore 211
local function leave_proof()
  if not KEYS[3] then return end
  local last = redis.pcall('get', KEYS[3])
  local proof = math.max(type(last) == 'string' and tonumber(last) or 0, 0) + 1
  proof = math.max(proof, now_us)
  redis.pcall('set', KEYS[3], string.format('%.0f', proof), 'px', '300000')
end
-- luacheck: pop
