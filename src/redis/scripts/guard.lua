-- guard.lua: the first lines of every script; the build includes them in front of it.
--
-- ARGV[1] is `not-after`, a time on this server's clock in ms; 0: none. After it the sender no
-- longer waits for the reply, so a copy that arrives later, on an abandoned connection, must do
-- nothing. `now` ends every reply and gives the sender the server's time. The conversion to an
-- integer reply drops its fraction of a ms.
--
-- The most frequent successes are answered with the time alone: one number costs the server less
-- than an array. It is in us. If the server's clock is before 2001 (BRIEF_MIN_US), scripts reply
-- with arrays only, so that no other number can be mistaken for it. Arithmetic converts strings by
-- itself, for less than tonumber().
--
-- Any client may have written the value of a key. A hold count has one to nine digits (COUNT); else
-- the key is not a lock: WRONGTYPE. This keeps out infinity and NaN. COUNT is a pattern, because
-- each script would pay for defining a function, called or not.
-- luacheck: push ignore 211
local BRIEF_MIN_US = 1e15
local COUNT = '^%d%d?%d?%d?%d?%d?%d?%d?%d?$'
local call = redis.call
local time = call('time')
local now_us = time[1] * 1000000 + time[2]
local now = now_us / 1000
local too_late = now - ARGV[1] >= 1 and ARGV[1] ~= '0'
-- luacheck: pop
