-- include: guard.lua
-- poll_batch: which of many locks are free or end soon. Polls for parked waiters, in one script.
--
-- KEYS 1..n lock hashes   ARGV 1 not-after, 2 ms
-- Reply {n, i, ..., now} with the indices of the keys that do not exist, never expire, or expire
--       within that many ms | {now} alone: too late
--
-- It reads the key's expiry only, whatever its type. A waiter found here attempts an acquire, and
-- learns the type from that.
-- luacheck: read globals call now too_late
if too_late then return {now} end

local soon_ms = ARGV[2] + 0
local reply = {#KEYS}
for i = 1, #KEYS do
  if call('pttl', KEYS[i]) < soon_ms then reply[#reply + 1] = i end
end
reply[#reply + 1] = now
return reply
