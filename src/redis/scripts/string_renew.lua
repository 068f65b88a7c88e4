-- include: guard.lua
-- string_renew: extend many string locks at once.
--
-- KEYS 1..n locks   ARGV 1 not-after, then for each: its lease ms, its token
--                    -1: no lease any more | -2: the same, written in any case
-- Reply {r1, ..., rn, now} with r = 1 held, 0 gone, -1 not a string | {now} alone: too late
--
-- A lease is raised, never shortened: so a copy that was sent before an extension cannot take it
-- back. It is written in any case, since replicas confirm nothing but writes; but a lease of 1 ms
-- only asks. A key that is permanent stays so. A key of a wrong type costs the others nothing; any
-- other error is the whole batch's.
-- luacheck: read globals call now too_late
if too_late then return {now} end

local pcall, args, tonumber = redis.pcall, ARGV, tonumber
local leases = {}
for i = 1, #KEYS do
  local lease_ms = tonumber(args[2 * i])
  if lease_ms < -2 or lease_ms == 0 then
    return redis.error_reply('ERR the lease must be at least 1 ms')
  end
  leases[i] = lease_ms
end

local reply = {}
for i, lock in ipairs(KEYS) do
  local lease_ms = leases[i]
  local there, held = pcall('get', lock), 0
  if there == args[2 * i + 1] then
    held = 1
    if lease_ms == -2 then call('pexpire', lock, 60000) end
    local ttl_ms = lease_ms ~= 1 and call('pttl', lock) or -1
    if ttl_ms >= 0 and lease_ms < 0 then
      call('persist', lock)
    elseif ttl_ms >= 0 then
      call('pexpire', lock, ttl_ms < lease_ms and args[2 * i] or ttl_ms)
    end
  elseif type(there) == 'table' then
    if not string.find(there.err, 'WRONGTYPE', 1, true) then return there end
    held = -1
  end
  reply[i] = held
end
reply[#KEYS + 1] = now
return reply
