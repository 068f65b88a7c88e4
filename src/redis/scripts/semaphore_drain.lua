-- include: counter_common.lua
-- semaphore_drain: takes all permits.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
-- ARGV 1 not-after
-- Reply {1, how many there were, now} | {0, 0, now} no semaphore | {-3, 0, now} too late
--
-- A negative number becomes zero, too. The TTL stays.
-- luacheck: read globals now there
if not there then return {0, 0, now} end
redis.call('set', KEYS[1], '0', 'keepttl')
return {1, tonumber(there), now}
