-- An example for each row of vm/capture/trace/breaks.def: a program, or the body of a function of a tensor x that is
-- compiled and called. graph_breaks.lua runs each and checks for that break; docs/graph_breaks.md shows it.
return {
  user = [[
x = x * 2
lt.graph_break("the next line talks to a server")
return x + 1]],
  disabled = [[
local send = lt.disable(function(x) return x end, {reason = "it talks to a server"})
local f = lt.compile(function(x) return send(x * 2) + 1 end)
f(lt.ones(3))]],
  stress = [[
local f = lt.compile(function(x) return x * 2 + 1 end)
lt.config.stress = "break"
f(lt.ones(3))
lt.config.stress = ""]],
  raises = [[
local f = lt.compile(function(x) return (x * 2):view(7) end)
print(pcall(f, lt.ones(3)))]],
  error_called = [[
local f = lt.compile(function(x)
  if x.shape[1] > 2 then error("two at most") end
  return x * 2
end)
print(pcall(f, lt.ones(3)))]],
  assert_fails = [[
local f = lt.compile(function(x)
  assert(x.shape[1] <= 2, "two at most")
  return x * 2
end)
print(pcall(f, lt.ones(3)))]],
  print = [[
x = x * 2
print("halfway")
return x + 1]],
  io = [[
x = x * 2
io.stderr:write("")
return x + 1]],
  clock = [[
local start = os.clock()
x = x * 2
return x + 1, os.clock() - start]],
  os = [[
x = x * 2
if os.getenv("SCALE") then x = x * 3 end
return x + 1]],
  random_number = [[
x = x * 2
return x + math.random("3")]],
  coroutine = [[
x = x * 2
local made = coroutine.create(type)
return x + 1, made]],
  debug = [[
x = x * 2
debug.traceback()
return x + 1]],
  frames = [[
x = x * 2
local caller = debug.getinfo(2, "l").currentline
return x + 1, caller]],
  load = [[
x = x * 2
local f = loadstring("return 3")
return x + f()]],
  collector = [[
x = x * 2
collectgarbage()
return x + 1]],
  environment = [[
x = x * 2
local scale = getfenv(0).scale
return x + (scale or 1)]],
  c_function = [[
local new = newproxy
local f = lt.compile(function(x)
  x = x * 2
  new()
  return x + 1
end)
f(lt.ones(3))]],
  not_constant = [[
x = x * 2
return x + #string.format("%s", {})]],
  address = [[
x = x * 2
return x + 1, tostring({})]],
  random_state = [[
x = x * 2 + lt.rand(3)
lt.manual_seed(1)
return x + lt.rand(3)]],
  hook = [[
local w = lt.ones(3, {requires_grad = true})
local function double(g) return g * 2 end
local f = lt.compile(function(x)
  local y = w * x
  y:register_hook(double)
  y:mul_(2)
  return y:sum()
end)
f(lt.ones(3))]],
  effect = [[
x = x * 2
lt.set_num_threads(lt.get_num_threads())
return x + 1]],
  reads_elements = [[
local list = (x:sum() + lt.ones(40)):totable()
return x * #list]],
  needs_number = [[
local total = (x * 2):sum():item()
if total > 1 then return x / total end
return x]],
  needs_truth = [[
local y = x * 2
if lt.equal(y, x) then return y end
return y - x]],
  needs_size = [[
local found = (x * 2):nonzero()
if found.shape[1] > 2 then return found[{"0:2"}] end
return found]],
  no_graph = [[
x = x * 2
x:view("int8"):zero_()
return x + 1]],
  compares_tensors = [[
local total = (x * 2):sum()
if total < x:max() then return x end
return x / total]],
  mask_read = [[
local f = lt.compile(function(x)
  local y = x * 3
  return y[x:sum():gt(1)] * 2
end)
f(lt.full({3}, 2))]],
  mask_write = [[
local f = lt.compile(function(x, row)
  local y = x * 3
  y[{row:sum():gt(1), lt.tensor(0, {dtype = "int64"})}] = 0
  return y + 1
end)
f(lt.ones(3, 2), lt.full({3}, 2))]],
  tensor_text = [[
x = x * 2
local text = "x is " .. x
return x + #text]],
  older_history = [[
local w = lt.ones(3, {requires_grad = true})
local loss = (w * 2):sum()
local f = lt.compile(function(loss) loss:backward() end)
f(loss)]],
  hooks = [[
local y = lt.ones(3, {requires_grad = true}) * 2
y:register_hook(function(g) return g * 2 end)
local f = lt.compile(function(x) return lt.grad((x * y):sum(), {y}) end)
f(lt.ones(3))]],
  hooked_view = [[
local w = lt.ones(3, {requires_grad = true})
local view = (w * 2):narrow(0, 0, 2)
view:register_hook(function(g) return g end)
local f = lt.compile(function(view, x) view:mul_(x) return view * 2 end)
f(view, lt.ones(2))]],
  view_history = [[
local base, w = lt.ones(3), lt.ones(2, {requires_grad = true})
local view = base:narrow(0, 0, 2)
local f = lt.compile(function(view, w) view:mul_(w) return view * 2 end)
f(view, w)]],
  new_leaf = [[
local f = lt.compile(function(x)
  local w = lt.zeros(4):narrow(0, 1, 3):requires_grad_()
  return (w * x):sum(), w
end)
f(lt.ones(3))]],
  function_gradient = [[
local Double = lt.autograd.Function:extend("Double")
function Double.forward(ctx, x) return x * 2 end
function Double.backward(ctx, g) return g * 2 end
local w = lt.ones(3, {requires_grad = true})
local f = lt.compile(function(x) return Double.apply(w * x) + 1 end)
f(lt.ones(3))]],
  shared_gradient = [[
local w = lt.ones(3, {requires_grad = true})
w:sum():backward()
local f = lt.compile(function(w, g) return w.grad * 2 + g end)
f(w, w.grad)]],
  gradient_key = [[
local w = lt.ones(3, {requires_grad = true})
w:sum():backward()
local seen = {[w.grad] = 2}
local f = lt.compile(function(x) return x * (seen[w.grad] or 1) end)
f(lt.ones(3))]],
  history_read = [[
local w = lt.ones(3, {requires_grad = true})
local f = lt.compile(function(x)
  local y = w * x
  return y.grad_fn and y + 1
end)
f(lt.ones(3))]],
  shared_memory = [[
local f = lt.compile(function(a, b)
  a:add_(1)
  return b * 2
end)
local x = lt.ones(3)
f(x, x:view("int32"))]],
  offset = [[
local f = lt.compile(function(x) return x:as_strided({2}, {1}, 0) * 2 end)
f(lt.ones(4):narrow(0, 2, 2))]],
  resized_out = [[
local out = lt.empty(0)
local f = lt.compile(function(x)
  x = x * 2
  lt.mul(x, 3, {out = out})
  return out + 1
end)
f(lt.ones(3))]],
  data_replaced = [[
x = x * 2
x.data = lt.zeros(3)
return x + 1]],
  userdata = [[
local file = newproxy(true)
getmetatable(file).__index = function() return 3 end
local f = lt.compile(function(x) return x * 2 + file.size end)
f(lt.ones(3))]],
  cdata = [[
local sizes = require("ffi").new("int[2]", 3, 4)
local f = lt.compile(function(x) return x * 2 + sizes[0] end)
f(lt.ones(3))]],
  comparison = [[
local a, b = newproxy(), newproxy()
local f = lt.compile(function(x) return a == b and x or x * 2 end)
f(lt.ones(3))]],
  concatenation = [[
local file = newproxy(true)
getmetatable(file).__concat = function() return "text" end
local f = lt.compile(function(x) return x * 2, file .. "" end)
f(lt.ones(3))]],
  argument = [[
local list = {1, 2}
local f = lt.compile(function(x)
  table.remove(list, 7)
  return x * 2
end)
f(lt.ones(3))]],
  metatable = [[
x = x * 2
local of_numbers = getmetatable(1)
return x + 1, of_numbers]],
  finalizer = [[
x = x * 2
setmetatable({}, {__gc = print})
return x + 1]],
  changing_key = [[
local list = {1, 2, 3, 4}
local f = lt.compile(function(x)
  list[#list + 1] = 5
  list[#list] = nil
  list[#list + 1] = 6
  return x * 2
end)
for i = 1, 4 do f(lt.ones(3)) end]],
  object_keys = [[
local w = lt.ones(3)
local scales = {[w] = 2}
local f = lt.compile(function(x)
  local tensor, scale = next(scales)
  return x + tensor * scale
end)
f(lt.ones(3))]],
  written_pairs = [[
local options = {scale = 2}
local f = lt.compile(function(x)
  options.shift = 1
  local name = next(options)
  return x * options[name]
end)
f(lt.ones(3))]],
  holes = [[
local list = {1, 2, 3, nil, 5}
local f = lt.compile(function(x)
  list[2] = nil
  return x * #list
end)
f(lt.ones(3))]],
  changing_value = [[
local f = lt.compile(function(x, step)
  x = x * 2
  local name = "step " .. step
  return x + #name
end)
for step = 1, 6 do f(lt.ones(3), step) end]],
  kept_closure = {[[
local n, scaled = 1, nil
x = x * 2
do
  local step = x.shape[1]
  scaled = function(y) return y * (n + step) end
end
n = 2
lt.graph_break()
return scaled(x)]], also = "user closed_variables"},
  closed_variables = {[[
do
  local n = 1
  local function count() n = n + 1 return n end
  lt.graph_break()
  x = x * 2
  kept = function() n = n - 1 return n + count() end
end
return x + kept()]], also = "user"},
  resumed = {[[
local rest, callee
function callee(x)
  x = x * 2
  lt.graph_break()
  for _, t in pairs(debug.getregistry()) do  -- as a debugger in C finds it
    for k, v in pairs(type(t) == "table" and t or {}) do
      if v == callee then rest = k end
    end
  end
  return x
end
local f = lt.compile(function(x) return (callee(x)) end)
f(lt.ones(3))
local g = lt.compile(function(x) return (rest(x)) end)
pcall(g, lt.ones(3))]], also = "user debug"},
  depth = [[
local function nested(x, n)
  if n == 0 then return x end
  return (nested(x * 2, n - 1))
end
local f = lt.compile(function(x) return nested(x, 300) end)
f(lt.ones(3))]],
  parted_call = [[
local function scaled(x, k)
  if k > 9 then return x end
  return (x * 2 + 1) * (x - 1) + 3
end
local f = lt.compile(function(x, k) return scaled(x, k) + scaled(x, k + 1) end)
lt.config.recompile_limit = 2
for k = 7, 11 do f(lt.ones(3), k) end
lt.config.recompile_limit = 8]],
  long_segment = [[
local steps = {}
for i = 1, 3000 do steps[i] = "x = x + s" end
local f = lt.compile(loadstring("local x, s = ... " .. table.concat(steps, "\n") .. " return x", "=example"))
lt.config.capture_budget_ms = 1
f(lt.ones(3), 2)
lt.config.capture_budget_ms = 2000]],
  called_loop = [[
local same = {__eq = function(a, b)
  for i = 1, 1e6 do if a[i] ~= b[i] then return false end end
  return true
end}
local a, b = setmetatable({}, same), setmetatable({}, same)
local f = lt.compile(function(x) return a == b and x or x * 2 end)
f(lt.ones(3))]],
  many_reads = [[
local list = {}
for i = 1, 8000 do list[i] = i end
local f = lt.compile(function(x)
  local key = next(list)
  return x * key
end)
f(lt.ones(3))]],
  many_values = [[
local text = ("x"):rep(240)
local f = lt.compile(function(x)
  x = x * 2
  return string.byte(text, 1, 240)
end)
f(lt.ones(3))]],
  long_list = [[
local list = {}
for i = 1, 300 do list[i] = i end
local f = lt.compile(function(x) return x * select("#", unpack(list)) end)
f(lt.ones(3))]],
  long_length = [[
local list = {}
for i = 1, 70000 do list[i] = i end
local f = lt.compile(function(x)
  list[70000] = nil
  return x * #list
end)
f(lt.ones(3))]],
}
