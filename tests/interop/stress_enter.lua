-- A worker of the stress test has acquired the lock and steps inside. Whoever is noted as inside
-- already is a violation, unless its process has been killed (its lease has run out since).
-- KEYS: who is inside, the guarded counter, processes that were killed, list of violations
-- ARGV: the worker, "process/thread"
-- Returns the guarded counter as it is now.
local before = redis.call('getset', KEYS[1], ARGV[1])
if before then
    local process = string.match(before, '^[^/]+')
    if redis.call('sismember', KEYS[3], process) == 0 then
        redis.call('rpush', KEYS[4], ARGV[1] .. ' stepped in on ' .. before .. ': ' .. KEYS[1])
    end
end
return redis.call('get', KEYS[2]) or '0'
