-- include: counter_common.lua
-- semaphore_change: gives permits back, or changes their number.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
-- ARGV 1 not-after, 2 by how many (may be negative), 3 1 = only if it is there,
--      4 'publish' or 'spublish', 5 channel
-- Reply {1, permits, now} changed | {2, permits, now} changed, but the publish was refused
--       {0, 0, now} it was not there | {-3, 0, now} too late
--
-- INCRBY keeps the TTL, and creates a missing key. Running twice changes twice, so a command whose
-- reply was lost must not be resent.
-- luacheck: read globals now there
if not there and ARGV[3] == '1' then return {0, 0, now} end

local permits = redis.call('incrby', KEYS[1], ARGV[2])
-- Fewer permits do not concern waiters, and a Java listener fails on a negative number.
if permits > 0 and tonumber(ARGV[2]) > 0 and
    type(redis.pcall(ARGV[4], ARGV[5], string.format('%.0f', permits))) == 'table' then
  return {2, permits, now}
end
return {1, permits, now}
