-- include: fair_common.lua
-- fair_hand_over: go on with what a release, a break or a give-up did not finish, because so many
-- in front of the line were dead.
--
-- KEYS 1 lock hash, 2 queue, 3 deadlines, 4 records, 5 unheard
-- ARGV 1 not-after, 2 any owner, 3 'publish' or 'spublish'
-- Reply {1, more, now}: more is 1 if there may be more of them; 0: somebody has it, or was told
--       {2, 0, now} the publish was refused | {-3, 0, now} too late
-- luacheck: read globals call now now_us lock open_line
local line = open_line()
if call('exists', lock) == 0 and line.hand_over('') == 'refused' then return {2, 0, now} end
return {1, line.more, now}
