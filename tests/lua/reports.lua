-- Tests reports: guards are folded, sources keep their names after a break, breaks and recompiles give advice, times
-- are split, entries are grouped.
local h = require "harness"
local lt = require "lutra"
local nn, optim = lt.nn, lt.optim
local test, equal, truthy = h.test, h.equal, h.truthy

local function has(text, part) truthy(text:find(part, 1, true), "no " .. part .. " in\n" .. text) end
local function lacks(text, part) truthy(not text:find(part, 1, true), part .. " in\n" .. text) end
local function lines(text) return select(2, text:gsub("\n", "")) end

test("guards of a train step fit on a screen", function()
  lt.reset()
  local net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
  local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
  local step = lt.compile(h.train_step(net, opt))
  step(lt.rand(6, 8), lt.randint(0, 2, {6}))
  step(lt.rand(5, 8), lt.randint(0, 2, {5}))
  local g = lt.guards(step)
  equal(#g, 2)
  local text = tostring(g)
  truthy(lines(text) <= 40, text)
  for line in text:gmatch("[^\n]+") do truthy(#line <= 80, line) end
  has(text, "entry 1 at bytecode 1, ")
  has(text, ", 1 hit, ")
  has(text, "opt.state[*].exp_avg, .exp_avg_sq (8): ")
  has(text, "alias opt.state[*]: an object of its own\n")
  has(text, "entry 2 at bytecode 1")
  has(text, "those of entry 1 but for\n")
  has(text, "  without relation: ") -- what entry 1 has beyond entry 2
  local all = g:text {all = true}
  truthy(lines(all) > 3 * lines(text))
  has(all, "alias opt.state[opt.param_groups[1].params[1]]: an object of its own\n")
  equal(tostring(g), g:text())
end)

test("before the first call", function()
  local f = lt.compile(function(x) return x end)
  has(tostring(lt.guards(f)), "not captured yet")
  has(tostring(lt.recompiles(f)), "no recompiles")
end)

test("one of a thing", function()
  local text = tostring(lt.explain(function(x) return x + 1 end)(lt.ones(2)))
  has(text, "1 graph, 0 graph breaks, 1 op\n")
  truthy(text:find("%d+%.%d%d ms %(capture %d+%.%d%d, passes %d+%.%d%d, schedule %d+%.%d%d, codegen %d+%.%d%d%)\n"),
    text)
  local stages = lt.explain(function(x) return x * 3 + 1 end)(lt.ones(2)).compile_stages[1]
  for _, name in ipairs {"capture", "passes", "schedule", "codegen"} do
    truthy(stages[name] >= 0 and stages[name] < 1e4, name)
  end
end)

test("values keep their names after a break", function()
  local function named(f, ...)
    local cf, found = lt.compile(f), {}
    cf(...)
    for _, entry in ipairs(lt.guards(cf)) do
      for _, g in ipairs(entry) do found[g.source] = true end
    end
    for source in pairs(found) do truthy(not source:find("slot %d"), source) end
    return found
  end
  local x = lt.rand(3)
  truthy(named(function(x)
    local h = x * 2
    if h:max():totable() > 3 then return h + 1 end
    return h - 1
  end, x)["h:max():totable()"])
  truthy(named(function(x, t)
    local y = x + 1
    lt.graph_break()
    return y * t.scale
  end, x, {scale = 2})["t.scale"])
  truthy(named(function(x) return math.random() * (x * 2):sum() end, x)["math.random()"])
  truthy(named(function(x) return (x * 2):sum():totable() / 4 + x end, x)["(x * 2):sum():totable()"])
end)

local function first_break(f, ...)
  local r = lt.explain(f)(...)
  return r.break_reasons[1] or {reason = "none", hint = ""}
end

test("breaks say what to do", function()
  local x, list = lt.ones(2), {3, 1}
  for name, f in pairs {
    print = function(x) x = x + 1 print("") return x end, write = function(x) x = x + 1 io.write("") return x end,
    clock = function(x) x = x + 1 os.clock() return x end, seed_lua = function(x) x = x
      + 1 math.randomseed("3") return x end,
    coroutine = function(x) x = x + 1 coroutine.create(type) return x end, debug = function(x) x = x
      + 1 debug.traceback() return x end,
    load = function(x) x = x + 1 loadstring "return 1" return x end, save = function(x) x = x
      + 1 lt.save(os.tmpname() .. ".npy", x) return x end,
    item = function(x) return x[x:sum():item() - 1] end,
    seed = function(x) x = x
      + lt.rand(2) lt.manual_seed(1) return x end,
    userdata = function(x) x = x + 1 io.stderr:write("") return x end, date = function(x) x = x
      + 1 os.date() return x end,
  } do
    local why = first_break(f, x)
    truthy(why.reason ~= "none", name .. " is no break")
    truthy(#why.hint > 20, name .. ": " .. why.reason .. " has no hint")
  end
  local b = first_break(function(x)
    x = x + 1
    lt.graph_break()
    return x
  end, x)
  equal(b.source, "lt.graph_break()")
  equal(b.anchor, "docs/graph_breaks.md#user")
end)

test("recompiles say what to do", function()
  local function hint(f, options, ...)
    lt.reset()
    local cf = lt.compile(f, options)
    for _, args in ipairs {...} do cf(unpack(args)) end
    local r = lt.recompiles(cf)
    return #r > 0 and r[#r].hint or "none", r[#r]
  end
  local double = function(x) return x * 2 end
  has(hint(double, nil, {lt.ones(3)}, {lt.ones(4)}), "lt.mark_dynamic(x, dim) makes it a symbol")
  has(hint(double, {dynamic = false}, {lt.ones(3)}, {lt.ones(4)}), "dynamic = false gives each size an entry")
  has(hint(double, nil, {lt.mark_static(lt.ones(3))}, {lt.mark_static(lt.ones(4))}),
    "lt.mark_static(x, dim) gives each size an entry")
  has(hint(double, nil, {lt.ones(3)}, {lt.ones(1)}), "sizes 0 and 1 have entries of their own")
  has(hint(double, nil, {lt.ones(3)}, {lt.ones(3):double()}), "each dtype has an entry")
  has(hint(double, nil, {lt.ones(3)}, {lt.ones(3, 3)}), "each number of dimensions has an entry")
  has(hint(double, nil, {lt.ones(3, 2)}, {lt.ones(2, 3):t()}), "contiguous")
  has(hint(function(x, s) return s == "a" and x + 1 or x + 2 end, nil, {lt.ones(3), "a"}, {lt.ones(3), "b"}),
    "an entry a value")
  local text,
    miss = hint(function(x) if x.shape[1] > 10 then return x * 2 end return x + 1 end, {dynamic = true}, {lt.ones(3)},
    {lt.ones(20)})
  has(text, "each outcome has an entry")
  equal(miss.new, "x.shape[1] = 20")
end)

local function explain(source)
  local path = h.write(os.tmpname(), source)
  local text = h.shell(h.program() .. " explain " .. path .. " 2>&1")
  os.remove(path)
  return text
end

test("the command: one report a function, what the script prints before it", function()
  local text = explain [[
    for i = 1, 12 do lt.compile(function(x) return x * i end)(lt.ones(2)) end
    local f = lt.compile(function(x) return x end)
    print("the script's own")
  ]]
  has(text, "(12 closures): 1 graph, 0 graph breaks, 0")
  equal(select(2, text:gsub("function at", "")), 2, text)
  truthy(text:find("the script's own", 1, true) < text:find("function at", 1, true), text)
  lacks(text, "1 graphs")
  lacks(text, "runs where\n\n")
  lacks(text, "runs where\n  recompiled")
end)

test("relations to NaN", function()
  lt.reset()
  local nan = 0 / 0
  local cf = lt.compile(function(x, n)
    if n ~= nan and n * 2 ~= n then return x * n end
    return x
  end)
  cf(lt.ones(2), 3)
  cf(lt.ones(2), 0)
  local relations = {}
  for _, g in ipairs(lt.guards(cf)[1]) do
    if g.kind == "relation" then relations[#relations + 1] = g.expected end
  end
  equal(table.concat(relations, "; "), "n ~= nan; n ~= n * 2")
  local last = lt.recompiles(cf)[1]
  equal(last.kind .. " was " .. last.old .. ", is " .. last.new, "relation was n ~= n * 2, is n = 0")
  cf(lt.ones(2), nan)
  truthy(tostring(lt._report(cf)):find("n ~= nan", 1, true))
end)

h.finish()
