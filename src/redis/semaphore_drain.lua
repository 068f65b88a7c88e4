-- include: guard.lua
-- semaphore_drain: take all permits there are.
--
-- KEYS 1 the number of permits   ARGV 1 not-after
-- Reply {1, how many there were, now} | {0, 0, now} no semaphore | {-3, 0, now} too late
--
-- A negative number becomes zero, too. Its TTL stays.
-- luacheck: read globals now too_late
if too_late then return {-3, 0, now} end

local there = redis.call('get', KEYS[1])
if not there then return {0, 0, now} end
if not there:find('^-?%d+$') then
  return redis.error_reply('WRONGTYPE the number of permits is not a number')
end
redis.call('set', KEYS[1], '0', 'keepttl')
return {1, tonumber(there), now}
