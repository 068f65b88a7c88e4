-- include: readwrite_common.lua
-- write_acquire: becomes the writer, or re-enters as the writer.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 writer's field, 3 lease ms,
--                         4 count the writer has (0 = first)
-- Reply now in us: it was free, and is held | {1, count, now} held, else
--       {0, pttl, now} others read or write | {-1, 0, now} our hold is gone
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once. A lease is only raised:
-- the writer may also read, with a longer lease.
-- luacheck: read globals now now_us too_late BRIEF_MIN_US COUNT NOT_THIS_KIND NOT_A_COUNT
if too_late then return {-3, 0, now} end

local lock, field, lease_ms = KEYS[1], ARGV[2], ARGV[3]
local count = tonumber(ARGV[4])
local wanted = count + 1
if tonumber(lease_ms) < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end

local ttl_ms = redis.call('pttl', lock)
if ttl_ms == -2 then
  if count > 0 then return {-1, 0, now} end
  redis.call('hset', lock, 'mode', 'write', field, '1')
  local expiry = redis.pcall('pexpire', lock, lease_ms)
  if type(expiry) == 'table' then
    redis.call('del', lock) -- A lock without a lease would never expire.
    return expiry
  end
  return now_us >= BRIEF_MIN_US and now_us or {1, 1, now}
end

local fields = redis.call('hmget', lock, 'mode', field)
if not fields[1] then return redis.error_reply(NOT_THIS_KIND) end
if fields[1] ~= 'write' or not fields[2] then
  if count > 0 then return {-1, 0, now} end
  return {0, ttl_ms, now}
end
if not string.find(fields[2], COUNT) then return redis.error_reply(NOT_A_COUNT) end
local there = tonumber(fields[2])
if count > 0 and there ~= count and there ~= wanted then return {-2, there, now} end

-- Ours: a re-entry, a resend, or (when we hold nothing) a residue that no client counts on. Always
-- written, as in plain_acquire.
if there ~= wanted then redis.call('hset', lock, field, wanted) end
if ttl_ms >= 0 then
  redis.call('pexpire', lock, ttl_ms < tonumber(lease_ms) and lease_ms or ttl_ms)
end
return {1, wanted, now}
