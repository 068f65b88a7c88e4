-- include: group_common.lua
-- group_force: break the holds on some values of a group, each of the owner the caller has seen.
--
-- KEYS 1 group hash   ARGV 1 not-after, 2 'publish' or 'spublish', 3 channel, 4 where holders
--                          listen, 5 what they are told, before the key; then for each value that
--                          was held: its field, its owner
-- Reply {1, told, now} some were broken | {2, told, now} the same, but the publish was refused
--       {0, 0, now} those owners hold none of them | {-3, 0, now} too late
--       told is 0, or -1: the message for the holders was refused
--
-- It names owners because a blind one, sent twice, could break the hold of whoever came next. The
-- holders are told first; what they hold beside these values they give up themselves.
-- luacheck: read globals now too_late look drop
if too_late then return {-3, 0, now} end

local group, broken = KEYS[1], false
for i = 6, #ARGV, 2 do
  local owner = ARGV[i + 1]
  local values, trouble = look(group, owner, {ARGV[i]})
  if not values then return trouble end
  local value = values[1]
  if value.holder == owner then
    drop(group, owner, values)
    broken = broken or value.held
  end
end
if not broken then return {0, 0, now} end

local told = 0
if type(redis.pcall('publish', ARGV[4], ARGV[5] .. group)) == 'table' then told = -1 end
if type(redis.pcall(ARGV[2], ARGV[3], '0')) == 'table' then return {2, told, now} end
return {1, told, now}
