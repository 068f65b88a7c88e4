-- include: group_common.lua
-- group_renew: renews many holds at once, of one group or of several.
--
-- KEYS 1..n group hashes, for each   ARGV 1 not-after, then for each: its lease ms, its owner, how
--                                         many values it has, their fields
-- Reply {r1, ..., rn, now} with r = 1 held, 0 gone or ended, -1 not a group
--       {now} alone: too late
--
-- All values of a hold are renewed, or none. A lease is raised, never shortened; a key without a
-- TTL stays without. A key of a wrong type does not affect the others; any other error fails the
-- batch.
-- luacheck: read globals now too_late read_values all_ours raise_ttl
-- luacheck: read globals integer ends_of is_lease BAD_LEASE
if too_late then return {now} end

local holds, at = {}, 2
for i = 1, #KEYS do
  local hold = {lease_ms = tonumber(ARGV[at]), owner = ARGV[at + 1], fields = {}}
  local many = tonumber(ARGV[at + 2])
  for j = 1, many do hold.fields[j] = ARGV[at + 2 + j] end
  holds[i], at = hold, at + 3 + many
  if not is_lease(hold.lease_ms) then return BAD_LEASE end
end

local function renew(group, hold)
  local values, trouble = read_values(group, hold.owner, hold.fields)
  if not values then return trouble end
  if not all_ours(values) then return 0 end
  -- A DEL of nothing comes first: a server that is out of memory lets a script finish once it has
  -- written.
  redis.call('hdel', group, '')
  local ends, fields = now + hold.lease_ms, {}
  for _, value in ipairs(values) do
    if value.ends < ends then
      fields[#fields + 1] = ends_of(value.field, hold.owner)
      fields[#fields + 1] = integer(ends)
    end
  end
  if #fields > 0 then redis.call('hset', group, unpack(fields)) end
  raise_ttl(group, hold.lease_ms)
  return 1
end

local reply = {}
for i, group in ipairs(KEYS) do
  local held = renew(group, holds[i])
  if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
    held = -1
  end
  reply[i] = held
end
reply[#KEYS + 1] = now
return reply
