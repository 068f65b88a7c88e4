-- include: counter_common.lua
-- semaphore_acquire: take permits, all that are wanted or none.
--
-- KEYS 1 the number of permits, 2 where permits with leases would be
--      3 where to leave the ticket; left out with the second
-- ARGV 1 not-after, 2 how many, 3 the ticket, 4 1 = an earlier copy may have run
-- Reply {1, left, now} taken | {0, there, now} too few, or no semaphore | {-3, 0, now} too late
--
-- Running twice would take twice, so what was taken leaves its ticket: the next copy finds it, and
-- so does semaphore_undo. It lasts 10 s longer than anybody asks for it. Without a third key, a
-- copy whose answer was lost must not be sent again.
-- luacheck: read globals now there
if ARGV[4] == '1' and redis.call('get', KEYS[3]) == ARGV[3] then
  return {1, tonumber(there or 0), now}
end
if not there then return {0, 0, now} end
if tonumber(there) < tonumber(ARGV[2]) then return {0, tonumber(there), now} end

local left = redis.call('decrby', KEYS[1], ARGV[2])
if KEYS[3] then
  local written = redis.pcall('set', KEYS[3], ARGV[3], 'px', '70000')
  if written.err then -- Nobody could tell that it was taken.
    redis.call('incrby', KEYS[1], ARGV[2])
    return written
  end
end
return {1, left, now}
