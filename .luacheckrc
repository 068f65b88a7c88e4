-- The scripts run inside the server: Lua 5.1, with these globals and no others.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "bit", "struct" }
max_line_length = 100
