-- include: counter_common.lua
-- semaphore_undo: give back what an acquire has taken whose sender has given up.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be, 3 where its ticket would be
-- ARGV 1 not-after, 2 how many, 3 the ticket, 4 'publish' or 'spublish', 5 channel
-- Reply {1, permits, now} given back | {2, permits, now} given back, but the publish was refused
--       {0, 0, now} it has not run, or was undone, or there is no semaphore any more
--       {-3, 0, now} too late
--
-- The ticket goes first: a second copy finds nothing. A semaphore that is gone stays gone.
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
