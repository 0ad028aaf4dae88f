-- Functions whose capture is kept as golden text: each case is {name, function, arguments...}.
local lt = require "lutra"
local nn = lt.nn

local x, y = lt.ones(4, 3), lt.ones(4, 3)
local w = lt.ones(2, 3, {requires_grad = true})
local config = {scale = 2, deep = {on = true}}
local layers = {lt.ones(3, 3), lt.ones(3, 3)}
local steps = 0

local Net = nn.Module:extend("Net")
function Net:init() self.fc = nn.Linear(3, 2) end
function Net:forward(input) return self.fc(input):relu() end
lt.manual_seed(0)
local net = Net()

local function twice(t) return t + t end
local function noisy(t)
  local u = t * 3
  print_nothing()
  return u - 1
end
function print_nothing() io.write("") end

return {
  {"straight line", function(a, b) return (a * 2 + b):relu():sum(-1) end, x, y},
  {"fields, upvalues and globals", function(a)
    if config.deep.on then return a * config.scale end
    return a
  end, x},
  {"an inlined call and varargs", function(...)
    local a, b = ...
    return twice(a) - select("#", ...) + b
  end, x, y},
  {"an unrolled loop over a list", function(a)
    for i = 1, #layers do a = a:matmul(layers[i]) end
    return a
  end, x},
  {"branches on sizes", function(a)
    if a:size(0) > 2 and a.shape[2] == 3 then return a:view(-1) end
    return a
  end, x},
  {"numbers stay symbolic", function(a, lr) return a - lr * 0.5 ^ 2 * a end, x, 0.1},
  {"a module", function(input) return net(input) end, x},
  {"a train step", function(input)
    local loss = nn.functional.linear(input, w):tanh():sum()
    w.grad = nil
    loss:backward()
    lt.no_grad(function() w:sub_(w.grad * 0.1) end)
    return loss
  end, x},
  {"effects on tables and upvalues", function(a)
    steps = steps + 1
    config.last = a + steps
    return {sum = a:sum(), n = steps}
  end, x},
  {"a break in the middle", function(a)
    local b = a + 1
    io.write("")
    return b * 2
  end, x},
  {"a break in an inlined callee", function(a)
    local b = a + 1
    local c = noisy(b)
    return c * 2
  end, x},
  {"a break in a loop", function(a)
    for i = 1, 3 do
      a = a * 2
      io.write("")
      a = a + i
    end
    return a
  end, x},
  {"data-dependent control flow", function(a)
    if a:sum():item() > 0 then return a * 2 end
    return a * 3
  end, x},
}
