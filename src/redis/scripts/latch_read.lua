-- include: guard.lua
-- latch_read: the remaining count, and the proof of the last time that the latch was open.
--
-- KEYS 1 the count, 2 the proof; left out if it is in another slot
-- ARGV 1 not-after (0: it only reads)
-- Reply {count, proof, now}; an open latch has the count 0; without a proof, proof is 0
-- luacheck: read globals now
local count = redis.call('get', KEYS[1]) or '0'
if #count > 16 or not count:find('^-?%d+$') then
  return redis.error_reply('WRONGTYPE the value is not a number')
end
local proof = KEYS[2] and redis.pcall('get', KEYS[2])
proof = type(proof) == 'string' and tonumber(proof) or 0
return {math.max(tonumber(count), 0), proof > 0 and proof < 1e16 and proof or 0, now}
