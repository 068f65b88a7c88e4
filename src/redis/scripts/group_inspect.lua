-- include: group_common.lua
-- group_inspect: who holds some values of a group. Changes nothing.
--
-- KEYS 1 group hash   ARGV 1 not-after, 2 owner, 3.. fields of the values
-- Reply {held, count, ms, now}: how many of the values are held; how often that owner holds all of
--       them; how long until all are free: -2 if they are free now, -1 if never
--       {-3, 0, 0, now} too late
-- luacheck: read globals now too_late read_values all_ours held_until fields_from
if too_late then return {-3, 0, 0, now} end

local values, trouble = read_values(KEYS[1], ARGV[2], fields_from(3))
if not values then return trouble end
local held, last = held_until(values)
if held == 0 then return {0, 0, -2, now} end
local count = all_ours(values) and values[1].count or 0
for _, value in ipairs(values) do count = math.min(count, value.count) end
local ttl_ms = redis.call('pttl', KEYS[1])
return {held, count, ttl_ms >= 0 and math.min(last - now, ttl_ms) or last - now, now}
