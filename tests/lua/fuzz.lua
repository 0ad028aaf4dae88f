-- Random programs: arithmetic, views, reductions, in-place writes, branches, loops, tables, closures, breaks and gradients.
-- Each runs eagerly and compiled on the same inputs, sizes that change included: results and effects agree bit for bit, gradients too
-- where the program is one graph. After a break the backward of each segment is a node of its own, which adds up what its segment gives
-- before it meets the others': there gradients agree but for rounding.
local lt = require "lutra"
local h = require "harness"

local seed = tonumber(os.getenv("LUTRA_FUZZ_SEED")) or 1
local state = seed
local function random(n) -- our own generator, so that a seed means the same program everywhere
  state = (state * 1103515245 + 12345) % 2147483648
  return math.floor(state / 65536) % n + 1
end
local function pick(list) return list[random(#list)] end

local unary = {"tanh", "sigmoid", "relu", "exp", "abs", "neg", "square", "floor", "sign"}
local binary = {"+", "-", "*"}

-- Variables t1 .. tk all are float32 of shape {n, 4}; s1 .. are Lua numbers.
local Program = {}
Program.__index = Program

function Program:line(format, ...) self.lines[#self.lines + 1] = string.rep("  ", self.depth) .. string.format(format, ...) end
function Program:tensor() return "t" .. random(self.tensors) end
function Program:number() return random(2) == 1 and "s" .. random(2) or tostring(random(7) / 4) end

local statements = {
  function(p) p:line("%s = %s:%s()", p:tensor(), p:tensor(), pick(unary)) end,
  function(p) p:line("%s = %s %s %s", p:tensor(), p:tensor(), pick(binary), p:tensor()) end,
  function(p) p:line("%s = %s %s %s", p:tensor(), p:tensor(), pick(binary), p:number()) end,
  function(p) p:line("%s = %s %s %s", p:tensor(), p:number(), pick(binary), p:tensor()) end,
  function(p) p:line("%s = %s + %s:sum(%d, true)", p:tensor(), p:tensor(), p:tensor(), random(2) - 1) end,
  function(p) p:line("%s = %s - %s:mean(-1, true)", p:tensor(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = %s * %s:amax(1, true)", p:tensor(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = %s:softmax(%d)", p:tensor(), p:tensor(), random(2) - 1) end,
  function(p) p:line("%s = %s:mm(%s:transpose(0, 1)):mm(%s) * 0.125", p:tensor(), p:tensor(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = lt.where(%s:gt(%s), %s, %s)", p:tensor(), p:tensor(), p:number(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = %s:view(-1):view(%s:size(0), 4)", p:tensor(), "(" .. p:tensor() .. " + 0)", p:tensor()) end,
  function(p) p:line("%s = %s[':, 1:2'] + %s", p:tensor(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = %s[-1] * %s", p:tensor(), p:tensor(), p:tensor()) end,
  function(p) p:line("%s = %s:to('float64'):to('float32')", p:tensor(), p:tensor()) end,
  function(p) -- in place, on a copy that nothing else needs for its gradient
    local t = p:tensor()
    p:line("%s = %s:clone()", t, p:tensor())
    p:line("%s:%s_(%s)", t, pick {"add", "mul", "sub"}, p:number())
    if random(2) == 1 then p:line("%s[':, 0'] = %s", t, p:number()) end
  end,
  function(p) p:line("s%d = s%d %s %s", random(2), random(2), pick(binary), random(5) / 8) end,
  function(p) p:line("local pair = {%s, k = %s}; %s = pair[1] + pair.k", p:tensor(), p:number(), p:tensor()) end,
  function(p) p:line("%s, %s = helper(%s, %s)", p:tensor(), "s" .. random(2), p:tensor(), p:number()) end,
  function(p) p:line("local c = function(v) return v * %s + s%d end; %s = c(%s)", p:number(), random(2), p:tensor(), p:tensor()) end,
  function(p) p:line("log[#log + 1] = %s", "s" .. random(2)) end,
  function(p) p:line("%s", pick {"lt.graph_break()", "effect(s1)", "log[#log + 1] = " .. p:tensor() .. ":sum():item()"}) end,
  function(p, budget)
    p:line("if %s > %s then", p:number(), p:number())
    p:block(budget)
    if random(2) == 1 then
      p:line("else")
      p:block(budget)
    end
    p:line("end")
  end,
  function(p, budget)
    p:line("for i = 1, %s do", pick {"2", "3", "k"})
    p:block(budget)
    p:line("end")
  end,
  function(p, budget)
    p:line("do local w = 0; while w < 2 do w = w + 1")
    p:block(budget)
    p:line("end end")
  end,
}
local leaves = #statements - 3

function Program:block(budget)
  self.depth = self.depth + 1
  for _ = 1, random(3) do statements[self.depth > 3 and random(leaves) or random(#statements)](self, budget) end
  self.depth = self.depth - 1
end

local function generate()
  local p = setmetatable({lines = {}, depth = 1, tensors = 4}, Program)
  for _ = 1, 4 + random(8) do statements[random(#statements)](p) end
  return [[
local lt, log, effect, helper = ...
return function(t1, t2, t3, s1, s2, k)
  local t4 = t1 + t2
]] .. table.concat(p.lines, "\n") .. [[

  return t1 + t2, t3:tanh(), t4, s1, s2
end]]
end

local log
local function effect(v) log[#log + 1] = v end
local function helper(t, s)
  local r = t * s
  if s > 1 then lt.graph_break() end
  return r - 0.5, s + 0.25
end

local function bits(v)
  if type(v) ~= "userdata" then return v == v and string.format("%.17g", v) or "nan" end
  local out = v:detach():reshape(-1):totable()
  for i, e in ipairs(out) do out[i] = e ~= e and "nan" or e == 0 and (1 / e < 0 and "-0" or "0") or string.format("%.9g", e) end
  return table.concat(v.shape, "x") .. ":" .. table.concat(out, " ")
end

-- Everything that can be seen of one call, as text, errors included; and the gradients, as tensors.
local function observe(f, shared_log, n, k, s1, grad, input_seed)
  lt.manual_seed(input_seed)
  local inputs = {}
  for i = 1, 3 do inputs[i] = lt.randn(n, 4, {requires_grad = grad}) end
  for i = #shared_log, 1, -1 do shared_log[i] = nil end
  log = shared_log
  local seen = {}
  local results = {pcall(f, inputs[1], inputs[2], inputs[3], s1, 1.5, k)}
  if not results[1] then return "error: " .. tostring(results[2]):gsub("^.-:%d+: ", ""), {} end
  local total
  for i = 2, #results do
    seen[#seen + 1] = bits(results[i])
    if type(results[i]) == "userdata" and results[i].requires_grad then
      local part = (results[i] * 0.5):sum()
      total = total and total + part or part
    end
  end
  if total then total:backward() end
  for _, v in ipairs(shared_log) do seen[#seen + 1] = bits(v) end
  return table.concat(seen, "\n"), {inputs[1].grad or false, inputs[2].grad or false, inputs[3].grad or false}
end

local function same_gradients(a, b, exact)
  for i = 1, 3 do
    local x, y = a[i], b[i]
    if not x ~= not y then return false end
    if x and bits(x) ~= bits(y) and (exact or not x:allclose(y, {rtol = 1e-4, atol = 1e-4, equal_nan = true})) then return false end
  end
  return true
end

local rounds = math.floor(60 * h.scale)
for round = 1, rounds do
  local start = state
  local source = generate()
  h.test("program " .. round .. " (LUTRA_FUZZ_SEED=" .. start .. ")\n" .. source, function()
    if round % 20 == 0 then lt.reset() end
    local shared_log = {}
    local chunk = assert(loadstring(source, "=fuzz"))
    local f = chunk(lt, shared_log, effect, helper)
    local compiled = lt.compile(chunk(lt, shared_log, effect, helper))
    for call, row in ipairs {{3, 2, 0.5, false}, {3, 2, 0.5, false}, {3, 3, 0.75, true}, {5, 2, 2, true}, {5, 2, 2, false}, {1, 1, 0.5, true}} do
      local n, k, s1, grad = unpack(row)
      local want, want_gradients = observe(f, shared_log, n, k, s1, grad, call)
      local got, got_gradients = observe(compiled, shared_log, n, k, s1, grad, call)
      if got ~= want then error(string.format("call %d:\n--- eager\n%s\n--- compiled\n%s", call, want, got), 0) end
      if not same_gradients(want_gradients, got_gradients, not source:find("break", 1, true) and not source:find("effect(s1)", 1, true)
          and not source:find("item", 1, true) and not source:find("helper(", 1, true)) then
        error(string.format("call %d: gradients\n--- eager\n%s\n%s\n%s\n--- compiled\n%s\n%s\n%s", call, want_gradients[1], want_gradients[2],
          want_gradients[3], got_gradients[1], got_gradients[2], got_gradients[3]), 0)
      end
    end
  end)
end

h.finish()
