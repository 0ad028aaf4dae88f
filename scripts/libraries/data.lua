-- dkjson, cjson, json, MessagePack, moses, penlight.
local dkjson, cjson, json = require "dkjson", require "cjson", require "json"
local texts = {'{"a":[1,2,{"b":null}],"c":"x\\u00e9\\n","d":-1.5e3,"e":true}', "[]", '[1, [2, [3, []]]]', '"text"',
  "[1,", "{}"}
for _, text in ipairs(texts) do
  local value, _, message = dkjson.decode(text)
  print(dkjson.encode(value, {indent = true, keyorder = {"a", "c", "d", "e"}}), message)
  local ok, other = pcall(cjson.decode, text)
  print(ok, ok and type(other) or other)
  print((pcall(json.decode, text)))
end
print(dkjson.encode({1, "two", {3}, x = nil}), json.encode {1, 2, {"three"}})

local mp = require "MessagePack"
for _, v in ipairs {1, -1, 255, 65536, 1.5, "text", true, {1, 2, 3}, {{{}}}, ("x"):rep(300)} do
  local bytes = mp.pack(v)
  local start = bytes:sub(1, 8):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  print(#bytes, type(mp.unpack(bytes)), start)
end

local M = require "moses"
print(table.concat(M.map({1, 2, 3}, function(v) return v * v end), " "),
  M.reduce({1, 2, 3, 4}, function(a, b) return a + b end))
print(table.concat(M.sort(M.unique {3, 1, 3, 2, 1}), " "), table.concat(M.flatten {1, {2, {3, {4}}}}, " "))
print(table.concat(M.select(M.range(1, 20), function(v) return v % 3 == 0 end), " "), M.isEqual({1, {2}}, {1, {2}}))
print(table.concat(M.chain({5, 4, 3}):map(function(v) return v + 1 end):sort():value(), " "))

local List, Map, Set = require "pl.List", require "pl.Map", require "pl.Set"
local tablex, stringx, seq = require "pl.tablex", require "pl.stringx", require "pl.seq"
local l = List {10, 20, 30, 5}
print(l:sorted(), l:slice(2, 3), l:map("+", 1), l:filter(">", 10), l:reduce "+", List.range(1, 5):reverse())
print(tablex.deepcompare({1, {2}}, {1, {2}}), List(tablex.keys {a = 1}), tablex.find({"a", "b"}, "b"))
print(stringx.split("a b  c"), stringx.strip "  x ", ("x"):rep(3), stringx.title "hello world")
print(stringx.splitlines "a\nb\n")
print(List(Set.values(Set {1, 2} * Set {2, 3})), Map {a = 1}, seq.sum {1, 2, 3})
print(require("pl.pretty").write({1, 2, {a = "x"}}))
print(require("pl.template").substitute("# for i = 1, 3 do\n<$(i)>\n# end\n", {}))
print(require("pl.comprehension").new() "x * x for x = 1, 5 if x % 2 == 1"()[3])
local class = require "pl.class"
local A = class()
function A:_init(n) self.n = n end
function A:__tostring() return "A" .. self.n end
function A.__lt(a, b) return a.n < b.n end
local B = class(A)
function B:_init(n) self:super(n + 1) end
print(A(1), B(1), A(1) < B(1), B(1):is_a(A), A:class_of(B(3)))
local lexer = require "pl.lexer"
for kind, text in lexer.lua "local x = 1 + f('a') -- c" do io.write(kind, ":", tostring(text), " ") end
print()
local Date = require "pl.sip"
local found = {}
print(Date.match("$v{name} = $d{value}", "size = 12", found), found.name, found.value)
