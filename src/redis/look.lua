-- include: guard.lua
-- look: which of many locks may be had, or change soon, for those who sleep until they are told.
--
-- KEYS 1..n lock hashes   ARGV 1 not-after, 2 ms
-- Reply {n, i, ..., now} with the indices of those that are gone, never end, or end within so many
--       ms | {now} alone: too late
--
-- Only the key is looked at, whatever its type: who finds it here attempts, and is told.
-- luacheck: read globals call now too_late
if too_late then return {now} end

local soon_ms = ARGV[2] + 0
local reply = {#KEYS}
for i = 1, #KEYS do
  if call('pttl', KEYS[i]) < soon_ms then reply[#reply + 1] = i end
end
reply[#reply + 1] = now
return reply
