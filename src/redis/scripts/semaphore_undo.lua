-- include: counter_common.lua
-- semaphore_undo: gives back what an abandoned acquire has taken.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
--      3 where its idempotency key would be
-- ARGV 1 not-after, 2 how many, 3 the idempotency key, 4 'publish' or 'spublish', 5 channel
-- Reply {1, permits, now} given back | {2, permits, now} given back, but the publish was refused
--       {0, 0, now} it has not run, or was undone, or the semaphore is gone
--       {-3, 0, now} too late
--
-- The idempotency key is deleted first: a second copy finds nothing. A semaphore that is gone stays
-- gone.
-- luacheck: read globals now there
if redis.call('get', KEYS[3]) ~= ARGV[3] then return {0, 0, now} end
redis.call('del', KEYS[3])
if not there then return {0, 0, now} end

local permits = redis.call('incrby', KEYS[1], ARGV[2])
if permits > 0 and
    type(redis.pcall(ARGV[4], ARGV[5], string.format('%.0f', permits))) == 'table' then
  return {2, permits, now}
end
return {1, permits, now}
