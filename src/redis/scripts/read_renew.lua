-- include: readwrite_common.lua
-- read_renew: renews the holds of many readers at once, on as many locks.
--
-- KEYS 1..n lock hashes   ARGV 1 not-after, then for each: its lease ms, the reader
-- Reply {r1, ..., rn, now} with r = 1 held, 0 gone, -1 not a lock | {now} alone: too late
--
-- A reader without any key is gone, even if its field is still in the hash. The script only raises
-- the TTLs of the reader's own keys and of the lock; a lock without a TTL stays without. If all
-- these levels exceed LEVELS_MAX, it changes nothing, and the sender renews each lock by itself.
-- luacheck: read globals now too_late READS LEVELS_MAX NOT_A_COUNT hold_keys first_hold_ms
if too_late then return {now} end

for i = 1, #KEYS do
  if tonumber(ARGV[2 * i]) < 1 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
end

local function raise(key, lease_ms)
  local ttl_ms = redis.call('pttl', key)
  if ttl_ms >= 0 and lease_ms ~= '1' then -- As in renew.
    redis.call('pexpire', key, ttl_ms < tonumber(lease_ms) and lease_ms or ttl_ms)
  end
  return ttl_ms
end

-- How often each reads; 0: it does not; or an error.
local counts, levels = {}, 0
for i, lock in ipairs(KEYS) do
  local fields = redis.pcall('hmget', lock, 'mode', ARGV[2 * i + 1])
  if fields.err then
    counts[i] = fields
  elseif not fields[1] or not fields[2] then
    counts[i] = 0
  elseif not string.find(fields[2], READS) then
    counts[i] = redis.error_reply(NOT_A_COUNT)
  else
    counts[i] = tonumber(fields[2])
    levels = levels + counts[i]
  end
end
if levels > LEVELS_MAX then
  return redis.error_reply('ERR the readers of one renewal read too often')
end

local function renew(lock, count, lease_ms, reader)
  if type(count) == 'table' then return count end
  local holds = hold_keys(lock, reader)
  if first_hold_ms(holds, count) == -2 then return 0 end
  raise(lock, lease_ms)
  for i = 1, count do
    -- One of several keys was deleted: write it again, unless the server is out of memory.
    if raise(holds .. i, lease_ms) == -2 then
      redis.pcall('set', holds .. i, '1', 'px', lease_ms)
    end
  end
  return 1
end

local reply = {}
for i, lock in ipairs(KEYS) do
  local held = renew(lock, counts[i], ARGV[2 * i], ARGV[2 * i + 1])
  if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
    held = -1
  end
  reply[i] = held
end
reply[#KEYS + 1] = now
return reply
