-- include: guard.lua
-- plain_acquire: acquires the lock, or re-enters it.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 owner, 3 lease ms (left out: 30000),
--                         4 count the owner holds (left out: 0 = first)
-- Reply now in us: it was free, and is held | {1, count, now} held, else
--       {0, pttl, now} another holds | {-1, 0, now} our hold is gone
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once.
-- luacheck: read globals call now now_us too_late BRIEF_MIN_US COUNT
if too_late then return {-3, 0, now} end

local lock, owner, lease_ms, count = KEYS[1], ARGV[2], '30000', 0
if ARGV[3] then
  lease_ms, count = ARGV[3], (ARGV[4] or 0) + 0
  if lease_ms - 1 < 0 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
end

local ttl_ms = call('pttl', lock)
if ttl_ms == -2 then
  if count > 0 then return {-1, 0, now} end
  call('hset', lock, owner, '1')
  local expiry = redis.pcall('pexpire', lock, lease_ms)
  if expiry ~= 1 then
    call('del', lock) -- A lock without a lease would never expire.
    return expiry
  end
  if now_us >= BRIEF_MIN_US then return now_us end
  return {1, 1, now}
end

local wanted = count + 1

local fields = call('hmget', lock, owner, 'mode')
if fields[2] then
  return redis.error_reply('WRONGTYPE this is a read/write lock')
end
if not fields[1] then
  if count > 0 then return {-1, 0, now} end
  return {0, ttl_ms, now}
end
if not string.find(fields[1], COUNT) then
  return redis.error_reply('WRONGTYPE the hold count is not a number')
end
local there = tonumber(fields[1])

-- Ours. A re-entry or a resend raises the lease and never shortens it: a late copy of the first
-- acquire may find a hold that was extended since. It always writes, because replicas confirm only
-- writes. Any other count, when we hold nothing, is a residue that no client counts on, and is
-- taken over as if it were new.
if there == count or there == wanted then
  if there == count then call('hset', lock, owner, wanted) end
  if ttl_ms >= 0 then
    call('pexpire', lock, ttl_ms < tonumber(lease_ms) and lease_ms or ttl_ms)
  end
  return {1, wanted, now}
end
if count > 0 then return {-2, there, now} end
call('hset', lock, owner, '1')
call('pexpire', lock, lease_ms)
return {1, 1, now}
