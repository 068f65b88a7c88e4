-- include: counter_common.lua
-- counter_delete: deletes a semaphore or a latch, and notifies the waiters of a latch.
--
-- KEYS 1 the number, 2 where permits with leases would be, 3 of a latch: the proof
-- ARGV 1 not-after, 2 'publish' or 'spublish' or nothing, 3 channel
-- Reply {1, 0, now} deleted | {2, 0, now} deleted, but the publish was refused
--       {0, 0, now} it was not there | {-3, 0, now} too late
--
-- Refuses to delete anything that is not a number, and a number whose permits are taken.
-- luacheck: read globals now there leave_proof
if not there then return {0, 0, now} end
redis.call('del', KEYS[1])
leave_proof()
if ARGV[2] ~= '' and type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, 0, now} end
return {1, 0, now}
