-- Tests that every accepted option has an effect, that an option which does not exist yet is an error that says so, and
-- that lt.config reads the values in force.
local h = require "harness"
local lt = require "lutra"
local test, equal, raises, truthy = h.test, h.equal, h.raises, h.truthy

local function double(x) return x * 2 end

test("options of compile that do not exist yet", function()
  for _, name in ipairs {"compile", "explain"} do
    local f = lt[name]
    raises(name .. ": unknown mode 'fast' (known: default, reduce-overhead, max-autotune)", f, double, {mode = "fast"})
    raises(name .. ": options.no_such_option does not exist yet", f, double, {options = {no_such_option = 1}})
    raises(name .. ": unknown option 'dynamc'", f, double, {dynamc = true})
    raises(name .. ": unknown backend 'inductor'", f, double, {backend = "inductor"})
    truthy(f(double, {mode = "reduce-overhead", options = {}, backend = nil})(lt.ones(1)))
  end
  raises("patch: unknown mode 'fast'", lt.patch, double, {mode = "fast"})
  raises("allow_in_graph: does not exist yet", lt.allow_in_graph, double)
  raises("mark_dynamic: unknown option 'least' (known: min, max)", lt.mark_dynamic, lt.ones(2), 0, {least = 2})
  raises("mark_dynamic: dim 0 has size 2, which is not from 3 to", lt.mark_dynamic, lt.ones(2), 0, {min = 3})
  raises("mark_dynamic: option 'max' must be a size, got number 2.5", lt.mark_dynamic, lt.ones(2), 0, {max = 2.5})
  raises("mark_dynamic: min 4 is more than max 3", lt.mark_dynamic, lt.ones(2), 0, {min = 4, max = 3})
  raises("mark_static: there are no options, got string 'min'", lt.mark_static, lt.ones(2), 0, {min = 2})
  equal(lt.mark_dynamic(lt.ones(2), 0, {}):size(0), 2)
  lt.auto {threshold = nil}
  lt.auto(false)
end)

-- Returns the number of entries of f after calls with tensors made for sizes 2 to 6.
local function entries(f, make)
  for size = 2, 6 do f(make(size)) end
  return #lt.guards(f)
end

test("dimensions of arguments that are symbols from the start", function()
  local function add(x, y) return x:sum() + y:sum() end
  local function both(n) return lt.ones(n, 3), lt.ones(3, n) end
  equal(entries(lt.compile(add, {dynamic = {x = {0}, y = {-1}}}), both), 1)
  equal(entries(lt.compile(add, {dynamic = {x = {0}}}), both), 2)
  local net = lt.nn.Linear(3, 2)
  equal(entries(lt.compile(net, {dynamic = {input = {0}}}), function(n) return lt.ones(n, 3) end), 1)
  local report = lt.explain(net, {dynamic = {input = {0}}})(lt.ones(4, 3))
  truthy(report.out_guards and tostring(report):find("float32{any, 3}", 1, true))
  raises("compile: option 'dynamic': the function has no argument z (known: x, y)", lt.compile, add,
    {dynamic = {z = {0}}})
  raises("compile: option 'dynamic.x' must be a list of dimensions, got number 0", lt.compile, add, {dynamic = {x = 0}})
  raises("compile: option 'dynamic.x' must be a list of dimensions, got number 0.5", lt.compile, add,
    {dynamic = {x = {0.5}}})
  local f = lt.compile(double, {dynamic = {x = {0, -2}}})
  raises("compile: option 'dynamic': dim -2 of x is out of range for 1 dims", f, lt.ones(2))
  equal(f(lt.ones(2, 2)):sum():item(), 8)
  -- Variables of the same name in other functions are not affected.
  local function other(x) x = x * 2 lt.graph_break() return x + 1 end
  local g = lt.compile(function(x)
    local y = other(x:sum())
    x = x:sum()
    lt.graph_break()
    return x * 2 + y
  end, {dynamic = {x = {1}}})
  for _ = 1, 2 do equal(g(lt.ones(2, 2)):item(), 17) end
end)

test("marked sizes with bounds", function()
  lt.reset()
  local f = lt.compile(double)
  f(lt.mark_dynamic(lt.ones(4), 0, {min = 3, max = 8}))
  f(lt.ones(3)) f(lt.ones(8))
  equal(#lt.guards(f), 1)
  f(lt.ones(9))
  equal(#lt.guards(f), 2)
  truthy(tostring(lt.recompiles(f)):find("was x.shape[1] <= 8, is x.shape[1] = 9", 1, true))
end)

test("reduce-overhead is the default's code", function()
  lt.reset()
  lt.compile(double)(lt.ones(1))
  lt.compile(double, {mode = "reduce-overhead"})(lt.ones(1))
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("explain runs the backend it is given", function()
  local seen = 0
  local report = lt.explain(double, {backend = function(graph)
    seen = seen + #graph._nodes
    return function(x) return x * 5 end
  end})(lt.ones(1))
  truthy(seen > 0, "the backend saw the graph")
  equal(report.result[1]:item(), 5)
end)

test("config reads what is in force", function()
  equal(lt.config.num_threads, lt.get_num_threads())
  truthy(lt.config.num_threads >= 1)
  lt.config.num_threads = 1
  equal(lt.config.num_threads, 1)
  equal(lt.get_num_threads(), 1)
  lt.config.num_threads = 0
  truthy(lt.config.num_threads >= 1)
  truthy(({avx512 = true, avx2 = true, interp = true})[lt.config.isa], "isa: " .. tostring(lt.config.isa))
  local best = lt.config.isa
  lt.config.isa = "interp"
  equal(lt.config.isa, "interp")
  lt.config.isa = nil
  equal(lt.config.isa, best)
  equal(lt.config.cache_dir, lt._native.cache_directory())
  lt.config.deterministic = true
  raises("config: deterministic = false does not exist yet (what exists: true)",
    function() lt.config.deterministic = false end)
  equal(lt.config.profit, "auto")
  lt.config.profit = "always"
  equal(lt.config.profit, "always")
  raises("config: profit = measure does not exist yet (what exists: auto|always)",
    function() lt.config.profit = "measure" end)
  equal(lt.config.profit, "always")
  lt.config.profit = nil
  equal(lt.config.profit, "auto")
  raises("config: profit must be one of auto|always|measure, got 'never'", function() lt.config.profit = "never" end)
  raises("config: deterministic must be one of true|false, got number", function() lt.config.deterministic = 1 end)
  local all = lt.config()
  for name, value in pairs(all) do equal(lt.config[name], value, name) end
  equal(all.recompile_limit, lt.config.recompile_limit)
end)

test("passes are switched off by name", function()
  equal(lt.config.passes, lt.config.passes)
  equal(lt.config.passes.cse, true)
  local twice = function(x) return (x + 1):exp() + (x + 1):exp() end
  local x = lt.randn(5)
  local want = lt.compile(twice)(x)
  lt.config.passes.cse = false
  lt.config.passes.dce = false
  equal(lt.config.passes.cse, false)
  equal(lt.config.passes().cse, false)
  equal(lt.config.passes().recompute, true)
  truthy(lt.equal(lt.compile(function(x) return (x + 1):exp() + (x + 1):exp() end)(x), want))
  lt.config.passes = {cse = true, sink_views = false}
  equal(lt.config.passes.cse, true)
  equal(lt.config.passes.dce, false)
  lt.config.passes = nil
  for name, on in pairs(lt.config.passes()) do equal(on, true, name) end
  raises("config: passes: 'cs' is no pass that can be switched off (known: unroll, join_parts, cse, dce,",
    function() lt.config.passes.cs = false end)
  raises("config: passes: 'decompose' is no pass that can be switched off",
    function() lt.config.passes.decompose = false end)
  raises("config: passes.dce must be true or false, got number", function() lt.config.passes = {dce = 1} end)
  raises("config: passes must be a table or nil, got string", function() lt.config.passes = "cse" end)
  local program = h.program() .. [[ -e 'print(lt.config.passes.cse, lt.config.passes.dce)' 2>&1]]
  equal(h.shell("LUTRA_PASSES=-cse " .. program), "false\ttrue\n")
  truthy(h.shell("LUTRA_PASSES=cse " .. program):find("LUTRA_PASSES: passes: 'cse' must be -NAME", 1, true))
end)

test("variables of the environment", function()
  local function run(setting) return h.shell(setting .. " " .. h.program()
    .. [[ -e 'print(lt.config.num_threads)' 2>&1; echo $?]]) end
  equal(run "LUTRA_NUM_THREADS=1", "1\n0\n")
  truthy(run("LUTRA_NUMTHREADS=1"):find("LUTRA_NUMTHREADS: unknown setting (known: LUTRA_RECOMPILE_LIMIT,", 1, true))
  truthy(run("LUTRA_DETERMINISTIC=0"):find("LUTRA_DETERMINISTIC: deterministic = false does not exist yet", 1, true))
  truthy(run("LUTRA_PROFIT=measure"):find("LUTRA_PROFIT: profit = measure does not exist yet", 1, true))
  equal(h.shell("LUTRA_PROFIT=always " .. h.program() .. [[ -e 'print(lt.config.profit)' 2>&1]]), "always\n")
  equal(run(
    "LUTRA_DETERMINISTIC=1 LUTRA_NUM_THREADS=1 LUTRA_TEST_ANY=1 LUTRA_CUDA_ANY=1 LUTRA_TORCH=x LUTRA_ORACLE_SEED=1"),
    "1\n0\n")
  local help = h.shell(h.program() .. " --help 2>&1")
  truthy(help:find("LUTRA_PROFIT", 1, true) and not help:find("DETERMINISTIC"))
end)

h.finish()
