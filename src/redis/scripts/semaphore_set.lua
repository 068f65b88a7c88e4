-- include: counter_common.lua
-- semaphore_set: creates a semaphore, unless it exists.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
-- ARGV 1 not-after, 2 how many, 3 ttl ms (0 = none), 4 'publish' or 'spublish', 5 channel
-- Reply {1, permits, now} created | {2, permits, now} created, but the publish was refused
--       {0, there, now} it existed | {-3, 0, now} too late
--
-- A name that is used for something else is an error, not "it existed".
-- luacheck: read globals now there
local permits, ttl_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
if there then return {0, tonumber(there), now} end

if ttl_ms > 0 then
  redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
else
  redis.call('set', KEYS[1], ARGV[2])
end
-- Publishes a positive number only: a Java listener counts by the payload.
if permits > 0 and type(redis.pcall(ARGV[4], ARGV[5], ARGV[2])) == 'table' then
  return {2, permits, now}
end
return {1, permits, now}
