-- string_acquire: take a string lock, with a write that replicas can confirm.
--
-- KEYS 1 lock   ARGV 1 token, 2 when the lease ends, in ms of this server's clock, 3 '1' a resend
-- Reply {1, 0} held | {0, pttl, the token there} another holds
--
-- Without acks SET NX GET does the same. A resend finds its own token and must write, since
-- replicas confirm nothing but writes: it writes the expiry that is there, because a renewal may
-- have raised it since. A first copy that finds its token was not the one to set it.
local lock, token = KEYS[1], ARGV[1]
local there = redis.call('get', lock)
if there == token and ARGV[3] == '1' then
  local ttl_ms = redis.call('pttl', lock)
  if ttl_ms >= 0 then redis.call('pexpire', lock, ttl_ms) end
  return {1, 0}
end
if there then return {0, redis.call('pttl', lock), there} end
redis.call('set', lock, token, 'PXAT', ARGV[2])
return {1, 0}
