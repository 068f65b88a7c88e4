-- guard.lua: the first lines of every script; the build puts them in front of it.
--
-- ARGV[1] is `not-after`, a time of this server in ms, 0 for none: when the sender stopped waiting
-- for the answer. A copy that arrives later, from a connection the sender has given up, must not
-- act any more. `now` closes every reply, so that the sender can tell the time here.
-- luacheck: push ignore 211
local time = redis.call('time')
local seconds, micros = tonumber(time[1]), tonumber(time[2])
local now = seconds * 1000 + math.floor(micros / 1000)
local not_after = tonumber(ARGV[1])
local too_late = not_after > 0 and now > not_after
-- luacheck: pop
