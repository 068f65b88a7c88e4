-- include: guard.lua
-- semaphore_acquire: take permits, all that are wanted or none.
--
-- KEYS 1 the number of permits   ARGV 1 not-after, 2 how many
-- Reply {1, left, now} taken | {0, there, now} too few, or no semaphore | {-3, 0, now} too late
--
-- Running twice takes twice: a copy whose answer was lost must not be sent again.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local there = redis.call('get', KEYS[1])
if not there then return {0, 0, now} end
if not there:find('^-?%d+$') then
  return redis.error_reply('WRONGTYPE the number of permits is not a number')
end
if tonumber(there) < tonumber(ARGV[2]) then return {0, tonumber(there), now} end
return {1, redis.call('decrby', KEYS[1], ARGV[2]), now}
