-- A worker of the stress test has acquired and steps inside, with its weight: all of the capacity
-- for an exclusive hold, less for what may be shared. More inside than the capacity is a violation;
-- those whose process has been killed do not count (their leases have run out since).
-- KEYS: who is inside, the guarded counter, processes that were killed, list of violations,
--       the last fencing token
-- ARGV: the worker, "process/thread"; its weight; the capacity; its fencing token, or 0
-- Returns the guarded counter as it is now.
local inside = redis.call('hgetall', KEYS[1])
local weight = tonumber(ARGV[2])
local others = ''
for i = 1, #inside, 2 do
    local process = string.match(inside[i], '^[^/]+')
    if redis.call('sismember', KEYS[3], process) == 1 then
        redis.call('hdel', KEYS[1], inside[i])
    else
        weight = weight + tonumber(inside[i + 1])
        others = others .. ' ' .. inside[i]
    end
end
if weight > tonumber(ARGV[3]) then
    redis.call('rpush', KEYS[4], ARGV[1] .. ' stepped in on' .. others .. ': ' .. KEYS[1])
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])

if ARGV[4] ~= '0' then
    local last = tonumber(redis.call('get', KEYS[5]) or '0')
    if tonumber(ARGV[4]) <= last then
        redis.call('rpush', KEYS[4], ARGV[1] .. ' has token ' .. ARGV[4] .. ' after ' .. last)
    end
    redis.call('set', KEYS[5], ARGV[4])
end
return redis.call('get', KEYS[2]) or '0'
