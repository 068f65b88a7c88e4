-- include: counter_common.lua
-- latch_set: closes the latch, if it is open.
--
-- KEYS 1 the count, 2 where permits with leases would be, 3 the proof
-- ARGV 1 not-after, 2 count (>= 1), 3 'publish' or 'spublish', 4 channel
-- Reply {1, count, now} closed | {2, count, now} closed, but the publish was refused
--       {0, count there, now} it was closed already | {-3, 0, now} too late
--
-- A stored count of zero or less is an open latch. The message is for Java, whose waiters read the
-- count again before they continue to sleep.
-- luacheck: read globals now there leave_proof
local count = tonumber(ARGV[2])
if count < 1 then
  return redis.error_reply('ERR the count must be at least 1')
end
if there and tonumber(there) > 0 then return {0, tonumber(there), now} end

redis.call('set', KEYS[1], ARGV[2])
leave_proof() -- Java may have opened it, and leaves no proof
if type(redis.pcall(ARGV[3], ARGV[4], '1')) == 'table' then return {2, count, now} end
return {1, count, now}
