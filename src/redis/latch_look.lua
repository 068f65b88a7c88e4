-- include: guard.lua
-- latch_look: what is left to count, and the proof of the last time that the latch was open.
--
-- KEYS 1 the count, 2 the proof; left out where it is in another slot
-- ARGV 1 not-after (0: it only reads)
-- Reply {count, proof, now}; an open latch has the count 0, and without a proof that is 0
-- luacheck: read globals now
local count = redis.call('get', KEYS[1]) or '0'
if not count:find('^-?%d+$') then
  return redis.error_reply('WRONGTYPE what has this name is not a number')
end
local proof = KEYS[2] and redis.pcall('get', KEYS[2])
return {math.max(tonumber(count), 0), type(proof) == 'string' and tonumber(proof) or 0, now}
