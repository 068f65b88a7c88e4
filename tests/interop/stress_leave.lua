-- A worker of the stress test writes the counter that it has read and raised, and steps outside.
-- A write that another overtook shows later: the counter is then less than the sum of all sections.
-- KEYS: who is inside, the guarded counter, sections done by each worker, list of violations
-- ARGV: the worker, the counter's new value
local inside = redis.call('get', KEYS[1])
if inside ~= ARGV[1] then
    redis.call('rpush', KEYS[4], ARGV[1] .. ' leaves, but inside is ' .. tostring(inside))
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[2], ARGV[2])
redis.call('hincrby', KEYS[3], ARGV[1], 1)
return 'OK'
