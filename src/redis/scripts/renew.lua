-- include: guard.lua
-- renew: renews many holds at once. For plain and write locks alike: it reads only the field.
--
-- KEYS 1..n lock hashes   ARGV 1 not-after, then for each: its lease ms, the owner's field in it
-- Reply {r1, ..., rn, now} with r = 1 held, 0 gone, -1 not a lock | {now} alone: too late
--
-- A lease is raised, never shortened, and always written, as in plain_acquire; but a lease of 1 ms
-- is only a query. A key without a TTL stays without. A key of a wrong type does not affect the
-- others; any other error fails the batch.
-- luacheck: read globals now too_late
if too_late then return {now} end

for i = 1, #KEYS do
  if tonumber(ARGV[2 * i]) < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
end

local reply = {}
for i, lock in ipairs(KEYS) do
  local lease_ms, field = ARGV[2 * i], ARGV[2 * i + 1]
  local held = redis.pcall('hexists', lock, field)
  if held == 1 then
    local ttl_ms = lease_ms ~= '1' and redis.call('pttl', lock) or -1
    if ttl_ms >= 0 then
      redis.call('pexpire', lock, ttl_ms < tonumber(lease_ms) and lease_ms or ttl_ms)
    end
  elseif held ~= 0 then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
    held = -1
  end
  reply[i] = held
end
reply[#KEYS + 1] = now
return reply
