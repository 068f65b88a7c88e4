-- include: guard.lua
-- permits_renew: renews the leases of many permits at once, of one object or of several.
--
-- KEYS 1..n the taken permits of the object, for each
-- ARGV 1 not-after, then for each: its lease ms, its id
-- Reply {r1, ..., rn, now} with r = 1 held, 0 gone or ended, -1 not a set of permits
--       {now} alone: too late
--
-- A lease is raised, never shortened; a permit without a lease stays without. A key of a wrong type
-- does not affect the others; any other error fails the batch. A server that is out of memory
-- refuses ZADD, but lets a script finish once it has written: so a removal of nothing comes first.
-- luacheck: read globals too_late
-- luacheck: globals now
if too_late then return {now} end
now = now - now % 1 -- in whole ms

for i = 1, #KEYS do
  if tonumber(ARGV[2 * i]) < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
end

local reply = {}
for i, taken in ipairs(KEYS) do
  local lease_ms, id = tonumber(ARGV[2 * i]), ARGV[2 * i + 1]
  local score = redis.pcall('zscore', taken, id)
  if type(score) == 'table' then
    if not string.find(score.err, 'WRONGTYPE', 1, true) then return score end
    reply[i] = -1
  elseif score and tonumber(score) > now then
    redis.call('zremrangebyrank', taken, 1, 0)
    redis.call('zadd', taken, 'xx', 'gt', string.format('%.0f', now + lease_ms), id)
    reply[i] = 1
  else
    reply[i] = 0
  end
end
reply[#KEYS + 1] = now
return reply
