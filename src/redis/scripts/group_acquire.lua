-- include: group_common.lua
-- group_acquire: acquires or re-enters some values of a group, all or none.
--
-- KEYS 1 group hash   ARGV 1 not-after, 2 owner, 3 lease ms, 4 count the owner has (0 = first),
--                          5 'publish' or 'spublish', 6 channel, 7.. fields of the values
-- Reply {1, count, now} held | {0, ms, now} others hold some, for so long at most
--       {-1, 0, now} our hold is gone | {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never incremented: running twice equals running once. A hold that has lost one
-- of its values is gone, and its other values are released.
-- luacheck: read globals now too_late read_values all_ours held_until drop fields_from raise_ttl
-- luacheck: read globals integer ends_of count_of is_lease BAD_LEASE SPARE_MS
if too_late then return {-3, 0, now} end

local group, owner, lease_ms = KEYS[1], ARGV[2], tonumber(ARGV[3])
local count = tonumber(ARGV[4])
local wanted = count + 1
if not is_lease(lease_ms) then return BAD_LEASE end
local values, size = read_values(group, owner, fields_from(7))
if not values then return size end

if count > 0 and not all_ours(values) then
  if drop(group, owner, values) then redis.pcall(ARGV[5], ARGV[6], '0') end
  return {-1, 0, now}
end
local others = {}
for _, value in ipairs(values) do
  if count > 0 and value.count ~= count and value.count ~= wanted then
    return {-2, value.count, now}
  end
  if value.holder and value.holder ~= owner then others[#others + 1] = value end
end
local held, last = held_until(others)
if held > 0 then
  -- Another clock may have set an end that is later than the key's expiry.
  local ttl_ms = redis.call('pttl', group)
  return {0, ttl_ms >= 0 and math.min(last - now, ttl_ms) or last - now, now}
end

-- A re-entry or a resend raises the lease and never shortens it. Any other count, when we hold
-- nothing, is a residue that no client counts on, and is taken over as if it were new.
local fields = {}
for _, value in ipairs(values) do
  local ends, known = now + lease_ms, value.count == count or value.count == wanted
  if value.ours and known then ends = math.max(ends, value.ends) end
  local at = #fields
  fields[at + 1], fields[at + 2] = value.field, owner
  fields[at + 3], fields[at + 4] = ends_of(value.field, owner), integer(ends)
  fields[at + 5], fields[at + 6] = count_of(value.field, owner), wanted
end
redis.call('hset', group, unpack(fields))
if size > 0 then
  raise_ttl(group, lease_ms)
else
  local expiry = redis.pcall('pexpire', group, integer(lease_ms + SPARE_MS))
  if type(expiry) == 'table' then
    -- Without a TTL the key would never expire.
    for _, value in ipairs(values) do value.holder = owner end
    drop(group, owner, values)
    return expiry
  end
end

-- Deletes all fields that former owners of these values have left.
if #others > 0 then
  local taken, rest = {}, {}
  for _, value in ipairs(others) do taken[value.field] = true end
  for _, name in ipairs(redis.call('hkeys', group)) do
    local field, former = string.match(name, '^([^:]+):(.*):%l+_%l+$')
    if field and taken[field] and former ~= owner then rest[#rest + 1] = name end
  end
  for i = 1, #rest, 1000 do
    redis.call('hdel', group, unpack(rest, i, math.min(i + 999, #rest)))
  end
end
return {1, wanted, now}
