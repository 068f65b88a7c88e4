-- include: guard.lua
-- counter_common.lua: shared by the scripts of semaphores and latches; included in front of each.
--
-- KEYS 1 the number
--      2 the key of permits with leases of the same name; left out if it is in another slot
--
-- A semaphore, a latch and the free permits of permits with leases are all a number in a string.
-- Taken permits are in a sorted set beside the number. If that set exists, the script refuses to
-- touch the name, even if the number is gone: the holders may still be at work, and would return
-- their permits to the new number. A number has at most 16 digits, which Lua can count exactly.
--
-- KEYS 3 of a latch: the proof that it was open; left out with the second
--
-- A latch may be open and closed again before a waiter polls. Messages prove nothing: all databases
-- share a channel, and any client can publish. So each script that opens or closes a latch stores a
-- larger number here. A waiter that finds another number than at its first poll knows that the
-- latch was open in between. The number lasts much longer than a waiter sleeps between two polls.
-- Without the right to write it, waiters must find the latch open.
-- luacheck: read globals now too_late now_us
if too_late then return {-3, 0, now} end

local there = redis.call('get', KEYS[1])
if there and (#there > 16 or not there:find('^-?%d+$')) then
  return redis.error_reply('WRONGTYPE the value is not a number')
end
if KEYS[2] and redis.call('type', KEYS[2]).ok == 'zset' then
  return redis.error_reply('WRONGTYPE permits with leases are ' .. (there and
    'taken under this name' or 'left over under this name: delete them first ({name}:timeout)'))
end

-- luacheck: push ignore 211
local function leave_proof()
  if not KEYS[3] then return end
  local last = redis.pcall('get', KEYS[3])
  local proof = type(last) == 'string' and tonumber(last) or 0
  proof = proof > 0 and proof < 9007199254740991 and math.max(proof + 1, now_us) or now_us
  redis.pcall('set', KEYS[3], string.format('%.0f', proof), 'px', '300000')
end
-- luacheck: pop
