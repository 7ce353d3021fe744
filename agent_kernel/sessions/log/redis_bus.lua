-- The scripts of redis.py. The line "-- script NAME" begins each of them.
-- script send
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i, key in ipairs(KEYS) do
    local body, keep, replaces = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
    -- A stream that is trimmed, not deleted, remembers its last id, so that ids always grow.
    if replaces == '1' then redis.call('XTRIM', key, 'MAXLEN', 0) end
    redis.call('XADD', key, 'MINID', '~', string.format('%.0f', now - keep), '*', 'b', body)
    redis.call('PEXPIRE', key, string.format('%.0f', keep))
end
return #KEYS

-- script swap
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then return version == ARGV[2] and 1 or 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
    redis.call('HSET', KEYS[1], 'version', ARGV[2], 'body', ARGV[3], 'written', string.format('%.6f', now))
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return 1

-- script get
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local found = redis.call('HMGET', KEYS[1], 'version', 'body', 'written')
if not found[1] then return false end
return {found[1], found[2], string.format('%.6f', now - found[3])}

-- script count
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local event, window, is_full, found = ARGV[1], tonumber(ARGV[2]), false, {}
for i, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
    local number, wait, limit = redis.call('ZCARD', key), 0, tonumber(ARGV[i + 2])
    -- A call that is repeated does not count itself.
    if redis.call('ZSCORE', key, event) then number = number - 1 end
    if number >= limit then
        is_full = true
        wait = redis.call('ZREVRANGE', key, limit - 1, limit - 1, 'WITHSCORES')[2] + window - now
    end
    found[2 * i - 1] = number
    found[2 * i] = string.format('%.0f', wait)
end
if event ~= '' and not is_full then
    for _, key in ipairs(KEYS) do
        redis.call('ZADD', key, 'NX', string.format('%.0f', now), event)
        redis.call('PEXPIRE', key, string.format('%.0f', window / 1000))
    end
end
return found

-- script renew
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
for i, key in ipairs(KEYS) do
    redis.call('ZADD', key, now, ARGV[i + 1])
    redis.call('PEXPIRE', key, ARGV[1])
end
return #KEYS

-- script uncount
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
return #KEYS
