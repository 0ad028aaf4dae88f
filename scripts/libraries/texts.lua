-- markdown, inspect, argparse, ansicolors, basexx, say.
local markdown = require "markdown"
print(markdown [[
# Title
Some *text* with `code`, **bold** and [a link](http://example.org "title").

* one
* two
    * three

1. first
2. second

> a quote
> over lines

    local x = 1

---
<div>html</div>
]])

local inspect = require "inspect"
local t = {1, 2, {3, 4, a = {b = {c = true}}}, name = "x\ny", [false] = 0, [3.5] = "half"}
t.self = t
print(inspect(t))
print(inspect(t, {depth = 1}))
print(inspect({a = {b = 1}, c = 2}, {process = function(item, path) if path[#path] ~= "b" then return item end end}))
print(inspect(setmetatable({1}, {__index = {x = 1}})))

local argparse = require "argparse"
local parser = argparse("tool", "does things")
parser:argument("input", "a file")
parser:option("-o --output", "where to", "a.out")
parser:option("-I --include"):count "*"
parser:flag("-v --verbose"):count "0-2":target "level"
parser:command "build":flag "--fast"
for _, args in ipairs {{"a", "-o", "c", "-vv", "build"}, {"x", "-II", "build", "--fast"}} do
  print(inspect(parser:parse(args)))
end
print(select(2, parser:pparse {"a", "--wrong"}))
print(parser:get_usage())
print(parser:get_help())

local colors = require "ansicolors"
print((colors("%{red}hello%{reset} %{bright blue}world"):gsub("\27", "ESC")))

local basexx = require "basexx"
for _, s in ipairs {"", "a", "hello world", "\0\255\1"} do
  print(basexx.to_base64(s), basexx.to_base32(s), basexx.to_hex(s), basexx.to_bit(s))
  print(basexx.from_base64(basexx.to_base64(s)) == s, basexx.from_base32(basexx.to_base32(s)) == s)
end

local say = require "say"
say:set_namespace "en"
say:set("greet", "hello %s, you have %d")
print(say("greet", {"Ann", 3}))
