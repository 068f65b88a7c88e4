-- include: counter_common.lua
-- latch_count_down: count one down; at zero the latch is open, and those who wait are told.
--
-- KEYS 1 the count, 2 where permits with leases would be, 3 the proof
-- ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel
-- Reply {1, left, now} counted | {2, 0, now} opened, but the publish was refused
--       {0, 0, now} it was open | {-3, 0, now} too late
--
-- An open latch is a key that is not there: only the proof is left behind, for a while. Running
-- twice counts twice: a copy whose answer was lost must not be sent again.
-- luacheck: read globals now there leave_proof
if not there then return {0, 0, now} end
if tonumber(there) > 1 then return {1, redis.call('decr', KEYS[1]), now} end

redis.call('del', KEYS[1])
if tonumber(there) < 1 then return {0, 0, now} end
leave_proof()
if type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, 0, now} end
return {1, 0, now}
