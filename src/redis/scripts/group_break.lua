-- include: group_common.lua
-- group_break: breaks the holds on some values of a group, each of the owner that the caller saw.
--
-- KEYS 1 group hash   ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel, 4 the break
--                          channel of holders, 5 the message, before the key; then for each value
--                          that was held: its field, its owner
-- Reply {1, holder, now} some were broken | {2, holder, now} the same, but the publish was refused
--       {0, 0, now} those owners hold none of them | {-3, 0, now} too late
--       holder is 0, or -1: the publish to the holders was refused
--
-- It names owners: a break without them, sent twice, could break the hold of the next owner. The
-- holders are notified first, and give up the other values they hold themselves.
-- luacheck: read globals now too_late read_values drop
if too_late then return {-3, 0, now} end

local group, broken = KEYS[1], false
for i = 6, #ARGV, 2 do
  local owner = ARGV[i + 1]
  local values, trouble = read_values(group, owner, {ARGV[i]})
  if not values then return trouble end
  local value = values[1]
  if value.holder == owner then
    drop(group, owner, values)
    broken = broken or value.held
  end
end
if not broken then return {0, 0, now} end

local holder_status = 0
if type(redis.pcall('publish', ARGV[4], ARGV[5] .. group)) == 'table' then holder_status = -1 end
if type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, holder_status, now} end
return {1, holder_status, now}
