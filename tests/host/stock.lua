-- Run by a stock luajit that finds lutra.so through package.cpath.
local raw_equal = rawequal
rawequal = function() return "mine" end -- the host's own: capture must not take it for Lua's
local lt = require "lutra"
assert(raw_equal(lt, require "lutra"))
assert(rawget(_G, "lt") == nil)
assert(lt.arange(4):sum():item() == 6)
local ok, message = pcall(function() return lt.matmul(lt.ones(2, 3), lt.ones(4, 5)) end)
assert(not ok and message:find("stock.lua:%d+: matmul: shapes {2, 3} and {4, 5} cannot be multiplied"), message)
assert(lt.nn and lt.optim and lt.data)
assert(require("lutra.nn") == lt.nn)
local x = lt.ones(2, {requires_grad = true})
x:sum():backward()
assert(x.grad:equal(lt.ones(2)))
local compiled = lt.compile(function(t) return t + 1, rawequal(t, t), math.abs(-2) end)
for _ = 1, 2 do
  local y, same, two = compiled(lt.ones(2))
  assert(y:equal(lt.full({2}, 2)) and same == "mine" and two == 2)
end
print "ok"
