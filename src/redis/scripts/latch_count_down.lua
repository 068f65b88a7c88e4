-- include: counter_common.lua
-- latch_count_down: counts down by one. At zero the latch opens, and its waiters are notified.
--
-- KEYS 1 the count, 2 where permits with leases would be, 3 the proof
-- ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel
-- Reply {1, left, now} counted | {2, 0, now} opened, but the publish was refused
--       {0, 0, now} it was open | {-3, 0, now} too late
--
-- An open latch has no key: only the proof remains, for a while. Running twice counts twice, so a
-- command whose reply was lost must not be resent.
-- luacheck: read globals now there leave_proof
if not there then return {0, 0, now} end
if tonumber(there) > 1 then return {1, redis.call('decr', KEYS[1]), now} end

redis.call('del', KEYS[1])
if tonumber(there) < 1 then return {0, 0, now} end
leave_proof()
if type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, 0, now} end
return {1, 0, now}
