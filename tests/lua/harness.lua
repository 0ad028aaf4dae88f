-- A small test harness, and helpers for tests of programs and of training. test(name, f) runs f at once and prints
-- failures. At the end of the file, finish() exits with 1 if any failed.
--   local h = require "harness"; local test, equal = h.test, h.equal ... h.finish()
local M = {count = 0, failed = 0}

local function show(v) return type(v) == "string" and string.format("%q", v) or tostring(v) end

function M.test(name, f)
  local only = os.getenv("LUTRA_TEST_ONLY")
  if only and not name:find(only, 1, true) then return end
  M.count = M.count + 1
  local ok, trace = xpcall(f, debug.traceback)
  if not ok then
    M.failed = M.failed + 1
    io.stderr:write("FAILED ", name, "\n", tostring(trace), "\n")
  end
end

function M.equal(got, want, what)
  if got ~= want then error(string.format("%s: got %s, want %s", what or "value", show(got), show(want)), 2) end
end

function M.truthy(got, what)
  if not got then error(string.format("%s: got %s", what or "value", show(got)), 2) end
end

function M.near(got, want, tolerance, what)
  if not (math.abs(got - want) <= (tolerance or 1e-6)) then
    error(string.format("%s: got %.9g, want %.9g", what or "value", got, want), 2)
  end
end

-- Nested tables of numbers, compared element by element.
function M.deep(got, want, tolerance, what)
  what = what or "value"
  if type(want) ~= "table" then
    if type(want) == "number" and type(got) == "number" then return M.near(got, want, tolerance or 0, what) end
    return M.equal(got, want, what)
  end
  M.equal(type(got), "table", what)
  for k, v in pairs(want) do M.deep(got[k], v, tolerance, what .. "[" .. show(k) .. "]") end
  for k in pairs(got) do
    if want[k] == nil then error(what .. ": unexpected key " .. show(k), 2) end
  end
end

local function number_text(v) return v ~= v and "nan" or ("%.17g"):format(v) end

-- The elements of a tensor and of its gradients.
function M.with_grad(v)
  if type(v) ~= "userdata" then return tostring(v) end
  local all = {}
  for i, e in ipairs(v:detach():reshape(-1):totable()) do all[i] = ("%.9g"):format(e) end
  return "{" .. table.concat(all, " ") .. "}" .. (v.grad and " grad " .. M.with_grad(v.grad) or "")
end

-- told(wrap) is a text of what wrapped functions do: compiled, it is eager's. Gives the counts of graphs and breaks.
function M.as_eager(told)
  local lt, want = require "lutra", told(function(f) return f end)
  lt.reset()
  M.equal(told(lt.compile), want)
  return lt.counters().stats.unique_graphs, M.breaks()
end

-- Returns a text that identifies a value: dtype, shape, strides and elements of a tensor; the list of a table.
function M.text(v)
  local kind, parts = type(v), {}
  if kind == "number" then return number_text(v) end
  if kind == "table" then
    for i, e in ipairs(v) do parts[i] = M.text(e) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  if kind ~= "userdata" then return kind .. " " .. tostring(v) end
  for i, e in ipairs(v:detach():reshape(-1):totable()) do
    parts[i] = type(e) == "number" and number_text(e) or tostring(e)
  end
  return ("%s {%s} {%s} %s"):format(v.dtype, table.concat(v.shape, " "), table.concat({v:stride()}, " "),
    table.concat(parts, " "))
end

-- Returns the results of f(...), or its error, as a text.
function M.outcome(f, ...)
  local r = {pcall(f, ...)}
  if not r[1] then return "raises " .. tostring(r[2]) end
  return M.text(r)
end

-- f(...) must raise a message that contains `text` (plain).
function M.raises(text, f, ...)
  local ok, message = pcall(f, ...)
  if ok then error("no error; wanted one with: " .. text, 2) end
  if not tostring(message):find(text, 1, true) then
    error(string.format("the error %s does not contain %s", show(tostring(message)), show(text)), 2)
  end
end

-- seen(f) tells as a text what f does; the text must be the same by each backend.
function M.same_by_backends(seen, f, what)
  local lt, want = require "lutra", seen(f)
  for _, backend in ipairs {"native", "eager", "aot_eager"} do
    lt.reset()
    M.equal(seen(lt.compile(f, {backend = backend})), want, what .. ", " .. backend)
  end
end

-- run(wrap) tells as a text what a program does; the program calls wrap(f) for what may be compiled. The text must be
-- the same with and without compiling. Returns how many graphs that took.
function M.graphs_of(run)
  local lt = require "lutra"
  local want = run(function(f) return f end)
  lt.reset()
  M.equal(run(lt.compile), want)
  return lt.counters().stats.unique_graphs
end

-- A step of training by the cross entropy of net's rows.
function M.train_step(net, opt)
  local cross_entropy = lt.nn.functional.cross_entropy
  return function(x, y)
    local loss = cross_entropy(net(x), y)
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end
end

-- Values of a leaf after some steps by the sum of p^3 / 3, so that the gradient is p^2; the optimiser and the leaf.
function M.minimise(class, options, steps, start)
  local p = lt.tensor(start, {dtype = "float64", requires_grad = true})
  local opt = class({p}, options)
  for _ = 1, steps do
    opt:zero_grad();
    ((p * p * p):sum() / 3):backward()
    opt:step()
  end
  return p:detach():totable(), opt, p
end

-- Five such steps of an optimiser are those of a formula in Lua numbers: p -> update(p, gradient, state, step).
function M.follows(class, options, update, start)
  start = start or {0.5, -1.25, 2}
  local got = M.minimise(class, options, 5, start)
  for i, value in ipairs(start) do
    local state = {}
    for step = 1, 5 do value = update(value, value * value, state, step) end
    M.near(got[i], value, 1e-12, "element " .. i)
  end
end

-- Graphs and graph breaks so far.
function M.graphs() return lt.counters().stats.unique_graphs end
function M.breaks()
  local n = 0
  for _, count in pairs(lt.counters().graph_break) do n = n + count end
  return n
end

-- Returns what a command prints on standard output.
function M.shell(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

-- The program that runs this file.
function M.program() return (M.shell("readlink /proc/$PPID/exe"):gsub("\n", "")) end

-- A new folder, empty.
function M.folder() return (M.shell("mktemp -d"):gsub("\n", "")) end

function M.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Gives the path back.
function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

-- A program of scripts/models with its options as a text: run(more) gives what it prints and its status, result(more)
-- the last loss, what it printed and its JSON; last, a folder for its files.
function M.model(command)
  local folder = M.folder()
  local function run(options)
    local text = M.shell(("'%s' ../../scripts/models/%s %s 2>&1; echo status $?"):format(M.program(), command, options))
    return text, tonumber(text:match("status (%d+)"))
  end
  local function result(options)
    local path = folder .. "/result.json"
    local text, status = run(options .. " --json " .. path)
    M.equal(status, 0, text)
    local json = M.read(path)
    return tonumber(json:match('"loss": ([%d.]+)')), text, json
  end
  return run, result, folder
end

-- The factor by which tests that scale run longer.
M.scale = assert(tonumber(os.getenv("LUTRA_TEST_SCALE") or 1), "LUTRA_TEST_SCALE is a number")

-- True if this program was built with AddressSanitizer: it takes several times as long, and keeps memory that was
-- freed.
local maps = io.open("/proc/self/maps")
M.sanitized = maps ~= nil and maps:read("*a"):find("libasan", 1, true) ~= nil
if maps then maps:close() end
-- Kilobytes of freed memory that AddressSanitizer keeps.
M.quarantine = M.sanitized and 400000 or 0
-- True if an arm64 program runs under an emulator: /proc/cpuinfo then shows the machine's own processor.
local about = io.open("/proc/cpuinfo")
M.emulated = about ~= nil and jit.arch == "arm64" and about:read("*a"):find("vendor_id", 1, true) ~= nil
if about then about:close() end
-- The factor by which a time may exceed that of a current machine before it counts as not linear.
M.patience = (M.sanitized or M.emulated) and 20 or 1

-- A program that trains a small network for some steps, the last of other sizes; it prints the bits of each loss, then
-- of the parameters.
M.training = [[
lt.manual_seed(3)
local nn = lt.nn
local net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.25), nn.LayerNorm(16), nn.Linear(16, 3))
local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
local step = lt.compile(function(x, y)
  local loss = nn.functional.cross_entropy(net(x), y)
  opt:zero_grad() loss:backward() opt:step()
  return loss
end)
for i = 1, 4 do
  local n = i < 3 and 8 or 5 + i
  print(("%a"):format(step(lt.randn(n, 6), lt.randint(0, 3, {n})):item()))
end
for _, p in ipairs(net:parameters()) do print(("%a"):format(p:detach():double():sum():item())) end]]

-- The beginning of a program that trains a small network on a GPU: step_of(model) returns a train step, next_step(step)
-- runs it on a random batch. show(t) prints the bits of a sum.
M.gpu_training = [[
local nn = lt.nn
lt.manual_seed(7)
local function show(t) print(("%a"):format(t:detach():double():sum():item())) end
local net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3)):to("cuda")
local opt = lt.optim.SGD(net:parameters(), {lr = 1e-2, momentum = 0.9})
local function step_of(model)
  return function(x, y)
    local loss = nn.functional.cross_entropy(model(x), y)
    opt:zero_grad() loss:backward() opt:step()
    return loss
  end
end
local function next_step(step)
  show(step(lt.randn(8, 6, {device = "cuda"}), lt.randint(0, 3, {8}, {device = "cuda"})))
end
]]

-- Returns the instruction sets among `names` that this machine has.
function M.isas(names)
  local lt, has = require "lutra", {}
  for _, isa in ipairs(names) do
    lt.config.isa = isa
    if pcall(function() return lt.ones({3}) + 1 end) then has[#has + 1] = isa end
  end
  lt.config.isa = nil
  return has
end

-- f(what) on each of isas, then with 1 and 3 threads.
function M.on_each_machine(isas, f)
  local lt = require "lutra"
  for _, isa in ipairs(isas) do
    lt.config.isa = isa
    f(" on " .. isa)
  end
  lt.config.isa = nil
  local before = lt.get_num_threads()
  for _, threads in ipairs {1, 3} do
    lt.set_num_threads(threads)
    f(": " .. threads .. " threads")
  end
  lt.set_num_threads(before)
end

-- Runs f under a collector that is never done.
function M.under_busy_collector(f)
  local pause, pace = collectgarbage("setpause", 0), collectgarbage("setstepmul", 100000)
  collectgarbage()
  f()
  collectgarbage("setpause", pause)
  collectgarbage("setstepmul", pace)
end

-- Ends a file that cannot test here anything that it is for; ctest shows it as skipped.
function M.skip(reason)
  print("skipped: " .. reason)
  os.exit(77)
end

function M.finish()
  if M.count == 0 then
    io.stderr:write("no tests ran\n")
    os.exit(1)
  end
  print(string.format("%d tests, %d failed", M.count, M.failed))
  os.exit(M.failed == 0 and 0 or 1)
end

return M
