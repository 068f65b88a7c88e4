-- include: counter_common.lua
-- semaphore_acquire: take permits, all that are wanted or none.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
-- ARGV 1 not-after, 2 how many
-- Reply {1, left, now} taken | {0, there, now} too few, or no semaphore | {-3, 0, now} too late
--
-- Running twice takes twice: a copy whose answer was lost must not be sent again.
-- luacheck: read globals now there
if not there then return {0, 0, now} end
if tonumber(there) < tonumber(ARGV[2]) then return {0, tonumber(there), now} end
return {1, redis.call('decrby', KEYS[1], ARGV[2]), now}
