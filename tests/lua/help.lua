-- Tests the REPL's help: every op, setting and option has a description, names can be searched, values of keywords are
-- completed.
local h = require "harness"
local lt = require "lutra"
local nn = lt.nn
local test, equal, truthy = h.test, h.equal, h.truthy

local help = lt._native.use "repl.help"

local function told(...)
  local out, write = {}, io.write
  io.write = function(...) for i = 1, select("#", ...) do out[#out + 1] = tostring((select(i, ...))) end end
  local ok, problem = pcall(help, ...)
  io.write = write
  assert(ok, problem)
  return table.concat(out)
end
local function has(text, part) truthy(text:find(part, 1, true), "no " .. part .. " in\n" .. text) end

test("every public function has a line about it", function()
  local missing, count = {}, 0
  local function check(f)
    local d = type(f) == "function" and lt._native.describe(f)
    if not d or d.name:find "^_" then return end
    count = count + 1
    if d.about == "" then missing[#missing + 1] = d.name end
    truthy(#d.about < 130, d.name .. ": " .. d.about)
  end
  for _, f in pairs(lt) do check(f) end
  local x = lt.ones(1)
  for name in pairs(lt._native.names().methods) do check(x[name]) end
  truthy(count > 800, "functions: " .. count)
  equal(table.concat(missing, " "), "")
end)

test("help of ops, settings, options, classes", function()
  has(told(lt.softmax), "exp(x) over the sum of exp along dim")
  has(told "softmax", "exp(x) over the sum of exp along dim")
  has(told(lt.concat), "The same as cat.")
  has(told(lt.ones(1).relu_), "x above zero, 0 below.")
  local config = told(lt.config)
  for name in pairs(debug.getmetatable(lt.config).names) do has(config, "  " .. name .. " ") end
  has(config, "LUTRA_NAME")
  has(config, lt.config.isa)
  local compile = told(lt.compile)
  for _, name in ipairs {"dynamic", "fullgraph", "backend", "mode", "options"} do has(compile, "\n    " .. name) end
  for _, name in ipairs {"mark_dynamic", "mark_static", "disable", "reset", "counters", "recompiles", "guards", "patch",
    "explain"} do
    truthy(#told(lt[name]) > 60, name .. ": " .. told(lt[name]))
  end
  local loader = told(lt.data.DataLoader)
  for _, name in ipairs {"batch_size", "shuffle", "drop_last", "generator"} do has(loader, name) end
  has(told(lt.optim.lr_scheduler.OneCycleLR), "pct_start")
  has(told(lt.optim.NAdam), "momentum_decay")
  has(told(lt.optim.Optimizer), "update_group")
  has(told(lt.autograd.Function), "backward(ctx, ...)")
  has(told(lt.nn.LSTM), "proj_size")
  has(told(lt.deepcopy), "shares no memory")
  has(told(lt.promote_types), "smallest dtype")
  has(told(lt.optim.lr_scheduler.StepLR), "StepLR(optimizer, step_size, gamma")
end)

test("help searches", function()
  has(told "conv", "lt.nn.Conv2d")
  has(told "guard", "lt.guards")
  has(told "softmx", "did you mean")
  has(told "softmx", "lt.softmax")
  has(told "Lienar", "lt.nn.Linear")
  has(told "qqqqqq", "nothing is called 'qqqqqq' here")
  has(tostring(help), "help(lt.softmax)")
  equal(told(), tostring(help) .. "\n")
end)

local function complete(text)
  local chunk = loadstring(lt._native.source "lutra.repl.complete")
  local host = {list_folder = function() return {"afile.txt"} end, end_line = function() end}
  local _, words = chunk(lt, lt._native.use, host)(text)
  local found = {}
  for _, word in ipairs(words) do found[word] = true end
  return found
end

test("values of keywords complete", function()
  truthy(complete('lt.zeros(2, {dtype="flo').float32)
  truthy(not complete('lt.zeros(2, {dtype="')["afile.txt"])
  truthy(complete('lt.compile(f, {backend = "').native)
  truthy(complete('lt.compile(f, {mode="').default)
  truthy(complete('lt.nn.functional.cross_entropy(x, y, {reduction="').mean)
  truthy(complete('lt.config.isa = "').avx2)
  truthy(complete('lt.load("')["afile.txt"])
  truthy(complete('lt.data.FashionMNIST{root="')["afile.txt"])
  truthy(not complete('lt.sum(x, {name="')["afile.txt"])
  x = lt.ones(2)
  truthy(not complete("x:softmax{").input and complete("x:softmax{").dim)
  truthy(not complete("x:ein").einsum and complete("lt.ein").einsum)
  x = lt.nn.Sequential()
  truthy(complete("x:app").append and complete("x:sta").state_dict)
  x = nil
  truthy(complete("lt.data.DataLoader(set, {").batch_size)
  truthy(complete("lt.optim.lr_scheduler.StepLR(opt, {").gamma)
end)

test("methods take a tensor first", function()
  local x = lt.ones(1)
  for name in pairs(lt._native.names().methods) do
    local d = lt._native.describe(x[name])
    local first = d and d.forms[1] and d.forms[1][1]
    truthy(not first or first.type:find "Tensor", name .. " takes " .. (first and first.type or "?") .. " first")
  end
end)

test("objects print", function()
  local set = lt.data.TensorDataset(lt.zeros(10, 3), lt.zeros({10}, {dtype = "int64"}))
  equal(tostring(set), "TensorDataset(10 rows: float32 {10, 3}, int64 {10})")
  equal(tostring(lt.data.DataLoader(set, {batch_size = 4, shuffle = true})),
    "DataLoader(3 batches of 4 of 10 rows, shuffled)")
  local net = nn.Linear(2, 2)
  equal(tostring(net:load_state_dict(net:state_dict())), "<All keys matched successfully>")
  equal(tostring(net:load_state_dict({weight = net.weight}, {strict = false})),
    "missing_keys: {bias}, unexpected_keys: {}")
end)

test("the prompt: ?name, a pasted chunk that ends with a call", function()
  local path = h.write(os.tmpname(), "?lt.softmax\n?\nhelp\n")
  local text = h.shell(h.program() .. " -i < " .. path .. " 2>&1")
  has(text, "exp(x) over the sum of exp along dim")
  truthy(select(2, text:gsub("Lutra is a tensor language in Lua", "")) >= 2, text)
  os.remove(path)
  local read = lt._native.use "repl.read"
  local shown
  local chunk = assert(read "local function double(v) return v * 2 end\nlocal y = 4\ndouble(y)")
  chunk(function(...) shown = ... end, function() end)
  equal(shown, 8)
  chunk = assert(read "local t = {}\nt.x = 1")
  chunk(function(...) shown = "nothing is shown" end, function() end)
  equal(shown, 8)
end)

test("JSON", function()
  local json = lt._native.json
  equal(json {b = 1, a = {true, "x\n\"", 0.5}, c = {}, d = setmetatable({}, {__jsontype = "array"})},
    [[{"a":[true,"x\n\"",0.5],"b":1,"c":{},"d":[]}]])
  equal(json(0 / 0), "null")
  equal(json(2 ^ 53), "9007199254740992")
  equal(json(-1.5), "-1.5")
  equal(json "\255ok", '"\239\191\189ok"')
  h.raises("json: a function has no JSON", json, print)
  h.raises("json: a key is a text or a number", json, {[true] = 1})
  local knot = {}
  knot.knot = knot
  h.raises("nested more than 100 deep", json, knot)
end)

h.finish()
