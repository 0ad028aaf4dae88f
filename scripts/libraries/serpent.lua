-- serpent, where LUA_PATH finds it (no package of Debian's has it); without it the status is 77.
local found, serpent = pcall(require, "serpent")
if not found then os.exit(77) end
local shared = {1, 2, {3, "four\n"}}
local t = {1, nil, 3, list = shared, again = shared, [0.5] = "half", [true] = false, text = 'q"uo\\te',
  huge = math.huge, [{}] = "table key", nested = {a = {b = {c = {}}}}}
t.self = t
print(serpent.line(t, {comment = false, nocode = true}):gsub("0x%x+", "ADDRESS"))
print(serpent.block({b = 1, a = {10, 20, x = {y = 1}}, ["end"] = 2}, {comment = false}))
print(serpent.block({3, 1, 2, k = "v"}, {comment = false, maxlevel = 1, sortkeys = false}))
print(serpent.line({a1 = 1, a10 = 2, a9 = 3, [10] = 4, [9] = 5}, {comment = false, sortkeys = true}))
print(serpent.line({1, 2, 3, 4, 5}, {comment = false, maxnum = 3}))
print(serpent.line({1 / 3, -0.1, 2 ^ 53}, {comment = false}))
local ok, copy = serpent.load(serpent.dump(t, {nocode = true}))
print(ok, copy.self == copy, copy.list == copy.again, copy.list[3][2], copy[0.5], copy[true], copy.text, copy.huge)
print(serpent.load "{1, 2,", (serpent.load "os.exit()"))
print(serpent.line(setmetatable({}, {__tostring = function() return "an object" end}), {comment = false}))
print(serpent.line({{1, 2}, {3, 4}}, {comment = false, custom = function(tag, head, body, tail)
  return tag .. head:upper() .. "<" .. body .. ">" .. tail
end}))
