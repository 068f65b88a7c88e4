-- include: group_common.lua
-- group_release: releases one level of all these values; the last one frees them and notifies the
-- waiters of all values of the group.
--
-- KEYS 1 group hash   ARGV 1 not-after, 2 owner, 3 lease ms for what remains, 4 count held (>= 1),
--                          5 'publish' or 'spublish', 6 channel, 7.. fields of the values
-- Reply {1, 0, now} released | {2, 0, now} released, but the publish was refused
--       {0, count - 1, now} still held | {-1, 0, now} not ours, or not all of them any more
--       {-2, count there, now} mismatch | {-3, 0, now} too late
--
-- The count is set, never decremented. An acquire of unknown outcome from count c is undone by
-- releasing c + 1. A hold that has lost one of its values is over: the reply is "not ours", and the
-- remaining values are released.
-- luacheck: read globals now too_late read_values all_ours drop fields_from
-- luacheck: read globals integer ends_of count_of
-- luacheck: read globals raise_ttl is_lease BAD_LEASE
if too_late then return {-3, 0, now} end

local group, owner = KEYS[1], ARGV[2]
local remaining, lease_ms = tonumber(ARGV[4]) - 1, tonumber(ARGV[3])
if remaining < 0 then
  return redis.error_reply('ERR the count must be at least 1')
end
local values, size = read_values(group, owner, fields_from(7))
if not values then return size end

if not all_ours(values) then
  if drop(group, owner, values) then redis.pcall(ARGV[5], ARGV[6], '0') end
  return {-1, 0, now}
end
for _, value in ipairs(values) do
  if value.count < remaining then return {-2, value.count, now} end
end

if remaining > 0 then
  if not is_lease(lease_ms) then return BAD_LEASE end
  -- A DEL of nothing comes first: a server that is out of memory lets a script finish once it has
  -- written.
  redis.call('hdel', group, '')
  local fields = {}
  for _, value in ipairs(values) do
    local at, ends = #fields, math.max(value.ends, now + lease_ms)
    fields[at + 1], fields[at + 2] = ends_of(value.field, owner), integer(ends)
    fields[at + 3], fields[at + 4] = count_of(value.field, owner), remaining
  end
  redis.call('hset', group, unpack(fields))
  raise_ttl(group, lease_ms)
  return {0, remaining, now}
end

drop(group, owner, values)
if type(redis.pcall(ARGV[5], ARGV[6], '0')) == 'table' then return {2, 0, now} end
return {1, 0, now}
