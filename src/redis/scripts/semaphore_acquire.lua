-- include: counter_common.lua
-- semaphore_acquire: takes permits, all or none.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
--      3 where to store the idempotency key; left out with the second
-- ARGV 1 not-after, 2 how many, 3 the idempotency key, 4 1 = an earlier copy may have run
-- Reply {1, left, now} taken | {0, there, now} too few, or no semaphore | {-3, 0, now} too late
--
-- Running twice would take twice, so an acquire stores its idempotency key: the next copy finds it,
-- and so does semaphore_undo. The key lasts 10 s longer than any copy can act. Without a third KEYS
-- entry, a copy whose reply was lost must not be sent again.
-- luacheck: read globals now there
if ARGV[4] == '1' and redis.call('get', KEYS[3]) == ARGV[3] then
  return {1, tonumber(there or 0), now}
end
if not there then return {0, 0, now} end
if tonumber(there) < tonumber(ARGV[2]) then return {0, tonumber(there), now} end

local left = redis.call('decrby', KEYS[1], ARGV[2])
if KEYS[3] then
  local written = redis.pcall('set', KEYS[3], ARGV[3], 'px', '70000')
  if written.err then -- No client could know that permits were taken.
    redis.call('incrby', KEYS[1], ARGV[2])
    return written
  end
end
return {1, left, now}
