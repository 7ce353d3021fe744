-- The scripts of redis.py. The line "-- script NAME" begins each of them.
-- script read
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local seen, names, found, room = {}, {}, {}, tonumber(ARGV[2])
for i = 4, #ARGV, 2 do
    names[#names + 1] = ARGV[i]
    seen[ARGV[i]] = tonumber(ARGV[i + 1])
end
if ARGV[3] == 'all' then names = redis.call('ZRANGE', KEYS[1], 0, -1) end
for _, name in ipairs(names) do
    local after = seen[name] or 0
    local last = tonumber(redis.call('HGET', KEYS[2], name) or 0)
    if last < after then return redis.error_reply('LOST') end
    seen[name] = nil
    if last > after and room > 0 then
        local entries = redis.call('ZRANGEBYSCORE', ARGV[1] .. name, '(' .. after, '+inf', 'LIMIT', 0, room)
        room = room - #entries
        found[#found + 1] = {name, entries}
    end
end
for _, after in pairs(seen) do if after > 0 then return redis.error_reply('LOST') end end
if #found == 0 then return string.format('%.6f', now) end
return {string.format('%.6f', now), room <= 0 and 1 or 0, found}

-- script commit
local function split(text)
    local words = {}
    for word in string.gmatch(text, '%d+') do words[#words + 1] = word end
    return words
end
local known = redis.call('GET', KEYS[3])
if known then return split(known) end
local last = 2 + 4 * tonumber(ARGV[1])
for i = last + 1, #ARGV, 2 do
    if (redis.call('HGET', KEYS[2], ARGV[i]) or '0') ~= ARGV[i + 1] then return false end
end
local key = 3
for i = 3, last, 4 do
    if (redis.call('LINDEX', KEYS[key + 2], -1) or '0') ~= ARGV[i + 1] then return false end
    key = key + 2
end
local places = {}
key = 3
for i = 3, last, 4 do
    local name, flag, log, stream = ARGV[i], ARGV[i + 2], KEYS[key + 1], KEYS[key + 2]
    key = key + 2
    local place = 0
    if flag ~= 'check' then
        place = redis.call('HINCRBY', KEYS[2], name, 1)
        if place == 1 then redis.call('ZADD', KEYS[1], 0, name) end
        if flag == 'replace' then
            for _, old in ipairs(redis.call('LRANGE', stream, 0, -1)) do
                redis.call('ZREMRANGEBYSCORE', log, old, old)
            end
            redis.call('DEL', stream)
        end
        local text = string.format('%.0f', place)
        redis.call('ZADD', log, text, text .. ':' .. ARGV[i + 3])
        redis.call('RPUSH', stream, text)
    end
    places[#places + 1] = string.format('%.0f', place)
end
if #places > 0 then redis.call('SET', KEYS[3], table.concat(places, ' '), 'EX', ARGV[2]) end
return places

-- script put
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('ZADD', KEYS[1], string.format('%.6f', now), ARGV[1])

-- script touch
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
for _, blob in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', string.format('%.6f', now), blob) end

-- script old
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now - ARGV[1]))

-- script drop
local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000
local freed = 0
for i, blob in ipairs(ARGV) do
    if i > 1 then
        local stored = redis.call('ZSCORE', KEYS[1], blob)
        if stored and tonumber(stored) <= now - ARGV[1] then
            freed = freed + redis.call('STRLEN', KEYS[i])
            redis.call('DEL', KEYS[i])
            redis.call('ZREM', KEYS[1], blob)
        end
    end
end
return freed
