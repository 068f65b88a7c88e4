-- include: readwrite_common.lua
-- read_acquire: joins the readers, or re-enters as a reader.
--
-- KEYS 1 lock hash   ARGV 1 not-after, 2 reader, 3 lease ms, 4 count the reader has (0 = first),
--                         5 'publish' or 'spublish', 6 channel
-- Reply now in us: it reads | {1, count, now} it reads once more
--       {0, pttl, now} another writes | {-1, 0, now} our hold is gone
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once. Level 1 gets the new
-- lease if its own is shorter, so a reader has one deadline. The levels between are left alone.
-- luacheck: read globals now now_us too_late BRIEF_MIN_US NOT_THIS_KIND NOT_A_COUNT
-- luacheck: read globals READS READS_MAX hold_keys first_hold_ms delete_holds
if too_late then return {-3, 0, now} end

local lock, reader, lease_ms = KEYS[1], ARGV[2], ARGV[3]
local count = tonumber(ARGV[4])
local wanted = count + 1
if tonumber(lease_ms) < 1 then
  return redis.error_reply('ERR the lease must be at least 1 ms')
end
if wanted > READS_MAX then
  return redis.error_reply('ERR a reader can read ' .. READS_MAX .. ' times at most')
end

local fields = redis.call('hmget', lock, 'mode', reader, reader .. ':write')
local mode, writes = fields[1], fields[3]
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply(NOT_THIS_KIND)
end
if fields[2] and not string.find(fields[2], READS) then return redis.error_reply(NOT_A_COUNT) end
local there = tonumber(fields[2] or 0)
if mode == 'write' and not writes and there == 0 and count == 0 then
  return {0, redis.call('pttl', lock), now}
end

local holds = hold_keys(lock, reader)
local longest_ms = first_hold_ms(holds, there)
if count > 0 then
  -- Gone, or our holds ran out while others kept the lock: delete what is left of them.
  if longest_ms == -2 then
    delete_holds(holds, math.max(wanted, there))
    if there > 0 then
      redis.call('hdel', lock, reader)
      if mode == 'read' and redis.call('hlen', lock) == 1 then
        redis.call('del', lock)
        redis.pcall(ARGV[5], ARGV[6], '0')
      end
    end
    return {-1, 0, now}
  end
  if there ~= count and there ~= wanted then return {-2, there, now} end
end

-- The keys come first: if the server cannot store the lease, or is out of memory, it refuses here,
-- before anything has changed. No level lasts longer than the one below it. So a reader that has
-- lost count and deletes them from the first on leaves none. A level that expired before the first
-- is written again.
local below, to_ms = math.max(count, 1), lease_ms
while below > 1 do
  local left_ms = redis.call('pttl', holds .. below)
  if left_ms > 0 then
    if left_ms < tonumber(lease_ms) then to_ms = left_ms end
    break
  end
  below = below - 1
end
for i = below + 1, wanted do redis.call('set', holds .. i, '1', 'px', to_ms) end
if redis.call('pttl', holds .. 1) < tonumber(lease_ms) then
  -- A deleted key is written again, for as long as the others last.
  local longer = longest_ms > tonumber(lease_ms)
  redis.call('set', holds .. 1, '1', 'px', longer and longest_ms or lease_ms)
end
for i = wanted + 1, there do redis.call('del', holds .. i) end
if mode then
  if there ~= wanted then redis.call('hset', lock, reader, wanted) end
  local ttl_ms = redis.call('pttl', lock)
  if ttl_ms >= 0 then -- Always written, as in plain_acquire.
    redis.call('pexpire', lock, ttl_ms < tonumber(lease_ms) and lease_ms or ttl_ms)
  end
  return count == 0 and now_us >= BRIEF_MIN_US and now_us or {1, wanted, now}
end
redis.call('hset', lock, 'mode', 'read', reader, wanted)
local expiry = redis.pcall('pexpire', lock, lease_ms)
if type(expiry) == 'table' then
  redis.call('del', lock, holds .. 1) -- A lock without a lease would never expire.
  return expiry
end
return count == 0 and now_us >= BRIEF_MIN_US and now_us or {1, wanted, now}
