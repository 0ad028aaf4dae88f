-- Tests backward with `inputs`: only these tensors get gradients, once each, and those that are not leaves keep theirs
-- afterwards. The expected values are PyTorch's. It runs eagerly, compiled, and with compiled backwards.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function text(t) return t and table.concat(t:reshape(-1):totable(), " ") or "nil" end

-- make(x, seen) runs on a leaf {1, 2}; seen(t, ...) notes gradients.
local function seen_of(make, wrap, calls)
  local notes = {}
  local f = wrap(make)
  for _ = 1, calls do
    local x = lt.tensor({1, 2}, {requires_grad = true})
    for _, t in ipairs {f(x)} do notes[#notes + 1] = text(t.grad) end
    notes[#notes + 1] = text(x.grad)
  end
  return table.concat(notes, ", ")
end

local function compare(name, want, make)
  test(name, function()
    local function same(f) return f end
    local twice = want .. ", " .. want
    equal(seen_of(make, same, 2), twice)
    lt.reset()
    equal(seen_of(make, lt.compile, 2), twice)
    equal(lt.counters().stats.internal_errors, 0)
    lt.reset()
    lt.config.compiled_autograd = true
    local ok, message = pcall(function()
      equal(seen_of(make, same, 2), twice)
      equal(seen_of(make, lt.compile, 2), twice)
    end)
    lt.config.compiled_autograd = false
    if not ok then error(message, 0) end
  end)
end

compare("one that keeps its gradient gets it once", "4 8, nil", function(x)
  local y = x * 2
  y:retain_grad();
  (y * y):sum():backward {inputs = {y}}
  return y
end)

compare("it keeps its gradient from then on", "8 16, 8 16", function(x)
  local y = x * 2
  local z = (y * y):sum()
  z:backward {inputs = {y}, retain_graph = true}
  z:backward()
  return y
end)

compare("one that is named twice gets its gradient once", "4 8, 8 16", function(x)
  local y = x * 2;
  (y * y):sum():backward {inputs = {y, x, y, x}}
  return y
end)

compare("by its place among the arguments", "4 8, nil", function(x)
  local y = x * 2;
  (y * y):sum():backward(nil, nil, false, {y})
  return y
end)

compare("by name behind all other arguments", "4 8, nil", function(x)
  local y = x * 2;
  (y * y):sum():backward(nil, nil, false, {inputs = {y}})
  return y
end)

compare("hooks run first", "44 88, nil", function(x)
  local y = x * 2
  local z = (y * y):sum()
  z:backward {inputs = {y}, retain_graph = true}
  y:register_hook(function(g) return g * 10 end)
  z:backward {inputs = {y}}
  return y
end)

compare("one without a gradient keeps the next", "4 8, 8 16", function(x)
  local y = x * 2
  local z = (y * y):sum();
  (x * 3):sum():backward {inputs = {y}}
  z:backward()
  return y
end)

compare("a root is asked for", "1, nil", function(x)
  local y = (x * 2):sum()
  y:backward {inputs = {y}}
  return y
end)

compare("parts of a result", "4, 2, nil", function(x)
  local a, b = unpack((x * 2):unbind(0));
  (a * b):backward {inputs = {a, b}}
  return a, b
end)

compare("a gradient that is read in the frame", "4 8, 24 48, nil", function(x)
  local y = x * 2;
  (y * y):sum():backward {inputs = {y}}
  local z = y.grad * 3
  local w = z:detach():requires_grad_();
  (w * w):sum():backward()
  return y, w
end)

test("results of a frame", function()
  for _, wrap in ipairs {function(f) return f end, lt.compile} do
    for call = 1, 3 do
      local x = lt.tensor({1, 2}, {requires_grad = true})
      local double = wrap(function(t) return t * 2 end)
      local asks = wrap(function(y) local z = (y * y):sum() z:backward {inputs = {y}, retain_graph = true} return z end)
      local y = double(x)
      if call == 3 then y:retain_grad() end
      local z = asks(y)
      equal(text(y.grad), "4 8")
      z:backward()
      equal(text(y.grad), "8 16")
      equal(text(x.grad), "8 16")
    end
  end
end)

h.finish()
