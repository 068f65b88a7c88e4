-- A worker of the stress test steps outside. Who was alone writes the counter that it has read and
-- raised: a write that another overtook shows later, since the counter is then less than the number
-- of such sections. Who shared must find the counter as it was: a violation else.
-- KEYS: who is inside, the guarded counter, sections done by each worker, list of violations,
--       sections done alone
-- ARGV: the worker, its weight, the capacity, the counter as it was when the worker stepped in
if redis.call('hget', KEYS[1], ARGV[1]) ~= ARGV[2] then
    redis.call('rpush', KEYS[4], ARGV[1] .. ' leaves, but is not inside: ' .. KEYS[1])
end
redis.call('hdel', KEYS[1], ARGV[1])
if ARGV[2] == ARGV[3] then
    redis.call('set', KEYS[2], string.format('%.0f', tonumber(ARGV[4]) + 1))
    redis.call('incr', KEYS[5])
elseif (redis.call('get', KEYS[2]) or '0') ~= ARGV[4] then
    redis.call('rpush', KEYS[4], ARGV[1] .. ' shared with a writer: ' .. KEYS[1])
end
redis.call('hincrby', KEYS[3], ARGV[1], 1)
return 'OK'
