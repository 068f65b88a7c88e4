-- guard.lua: the first lines of every script; the build puts them in front of it.
--
-- ARGV[1] is `not-after`, a time of this server in ms, 0 for none: when the sender stopped waiting
-- for the answer. A copy that arrives later, from a connection the sender has given up, must not
-- act any more. `now` closes every reply, so that the sender can tell the time here; what is less
-- than a ms is cut off when a reply is made of it.
--
-- What locks are asked most often, and can do, they answer by the time alone: one number costs the
-- server less than an array. It is in us, and a server that believes it is before 2001
-- (BRIEF_MIN_US) answers by arrays only, so that no other number can be taken for it. Arithmetic
-- reads strings by itself, and for less than tonumber().
-- luacheck: push ignore 211
local BRIEF_MIN_US = 1e15
local call = redis.call
local time = call('time')
local now_us = time[1] * 1000000 + time[2]
local now = now_us / 1000
local too_late = now - ARGV[1] >= 1 and ARGV[1] ~= '0'
-- luacheck: pop
