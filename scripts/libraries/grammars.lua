-- LPeg, its re, its patterns; cosmo's templates.
local lpeg, re = require "lpeg", require "re"
local number = lpeg.R "09" ^ 1 / tonumber
local V = lpeg.V
local function fold(a, op, b)
  if op == "+" then return a + b elseif op == "-" then return a - b else return a * b end
end
local sum = lpeg.P {
  "Sum", Sum = lpeg.Cf(V "Product" * lpeg.Cg(lpeg.C(lpeg.S "+-") * V "Product") ^ 0, fold),
  Product = lpeg.Cf(V "Atom" * lpeg.Cg(lpeg.C "*" * V "Atom") ^ 0, fold), Atom = number + "(" * V "Sum" * ")",
}
for _, s in ipairs {"1+2*3", "(1+2)*3", "10-2-3", "2*(3+4)*5"} do print(s, sum:match(s)) end
print(table.concat(re.compile("{| ({%w+} %s*)* |}"):match "one two three", ","))
print(re.gsub("hello world", "[aeiou]", "*"), re.find("abc123", "%d+"), re.match("x=1", "{%w} '=' {%d}"))
local list = re.compile([[
  list <- {| item (',' item)* |}
  item <- {[^,()]+} / '(' list ')'
]])
local function show(t) return type(t) == "table" and "(" .. #t .. ":" .. show(t[1]) .. ")" or tostring(t) end
print(show(list:match "a,(b,c),d"), show(list:match "((x))"))
local IPv4 = require("lpeg_patterns.IPv4").IPv4address
print(IPv4:match "127.0.0.1" ~= nil, IPv4:match "300.0.0.1" ~= nil)
local cosmo = require "cosmo"
print(cosmo.fill("Hello $name, $do_items[[<$item>]]", {name = "Ann", do_items = function()
  for i = 1, 3 do cosmo.yield {item = i} end
end}))
print(cosmo.f "$1 and $2" {"x", "y"})
