-- Tests that every public name has a line of help, an annotation, a page, and an example. The example runs eagerly and
-- compiled with the same bits. In each dtype it runs or is refused by an error that names the op. Every op has a case
-- against PyTorch; a differentiable one has a case with gradients.
local h = require "harness"
local lt = require "lutra"
local test, equal, truthy = h.test, h.equal, h.truthy

local use = lt._native.use
local names, examples, annotations, pages = use "meta.names", use "meta.examples", use "meta.annotations",
  use "meta.pages"

local function draws(d) return (select(3, examples.parts(d))) end

-- A check of every name, whose problems are told together.
local function every(check)
  local problems = {}
  for _, d in ipairs(names.list) do
    local problem = check(d)
    if problem then problems[#problems + 1] = d.name .. ": " .. problem end
  end
  truthy(#problems == 0, table.concat(problems, "\n"))
end

local meta, ops = annotations.files(), pages.files()

test("every name has a line, a page, a place in the index", function()
  truthy(#names.list > 600, "names: " .. #names.list)
  every(function(d)
    if d.about == "" then return "no line" end
    if not ops[names.page_of(d) .. ".md"] then return "no page" end
    if not ops["index.md"]:find("[" .. d.name .. "]", 1, true) then return "not in the index" end
  end)
end)

test("every name is annotated once, in Lua", function()
  for file, text in pairs(meta) do truthy(loadstring(text, file)) end
  every(function(d)
    local functional = d.name:match "^nn%.(functional%..*)"
    for _, place in ipairs {d.method and "Tensor:" or false, d["function"] and "lt." or false} do
      if place then
        local wanted, count = "function " .. (functional or place .. d.name) .. "(", 0
        if d.name == "repeat" then wanted = place:sub(1, -2) .. '["repeat"] = function(' end
        for _, text in pairs(meta) do
          local at = text:find(wanted, 1, true)
          while at do count, at = count + 1, text:find(wanted, at + 1, true) end
        end
        if count ~= 1 then return count .. " annotations as " .. wanted end
      end
    end
  end)
end)

test("lutra docs writes them", function()
  local folder = os.tmpname()
  os.remove(folder)
  truthy(h.shell(h.program() .. " docs " .. folder):find("index.md", 1, true))
  for name, text in pairs(ops) do equal(io.open(folder .. "/ops/" .. name):read "*a", text, name) end
  for name, text in pairs(meta) do equal(io.open(folder .. "/meta/" .. name):read "*a", text, name) end
  os.execute("rm -r " .. folder)
end)

-- Returns a text for any result of an example: dtypes, shapes and elements.
local function text_of(v)
  if lt.is_tensor(v) and v:is_complex() then v = lt.view_as_real(v) end
  if lt.is_tensor(v) then
    return v.dtype .. "{" .. table.concat(v.shape, ",") .. "}"
      .. (v:numel() > 0 and tostring(v:detach():to "float64") or "")
  end
  if type(v) ~= "table" then return type(v) == "userdata" and "userdata" or tostring(v) end
  local out = {}
  for i, each in ipairs(v) do out[i] = text_of(each) end
  return table.concat(out, " ")
end
local function all_of(results)
  local out = {}
  for i = 1, results.n do out[i] = text_of(results[i]) end
  return table.concat(out, "\n")
end
local function pack(...) return {n = select("#", ...), ...} end

-- Ops whose elements differ from run to run, or whose results contain a function.
local varies = {empty = true, empty_like = true, empty_strided = true, empty_permuted = true, new_empty = true,
  new_empty_strided = true, register_hook = true, register_post_accumulate_grad_hook = true}

test("every example runs, compiled to the same bits", function()
  every(function(d)
    if examples.shown[d.name] then return nil end
    local line = examples.example(d)
    if not line:find("%f[%w_]" .. d.name .. "%f[^%w_]") and not line:find "linalg" then
      return "not in its example: " .. line
    end
    local ok, eager = examples.run(line)
    if not ok then return line .. ": " .. eager end
    if varies[d.name] then return nil end
    local f = lt.compile(examples.chunk(line, examples.environment()))
    lt.manual_seed(0)
    local compiled = pack(f())
    if all_of(compiled) ~= all_of(eager) then
      return line .. ":\n" .. all_of(eager) .. "\ncompiled:\n" .. all_of(compiled)
    end
  end)
end)

-- Returns the visible properties of a result, without its elements; for an error, its message.
local function kind_of(ok, v, ...)
  if not ok then return "error: " .. tostring(v):gsub("^[^:]*:%d+: ", ""):gsub("\n.*", "") end
  local out = {}
  for i, each in ipairs {v, ...} do
    local list = type(each) == "table" and each or {each}
    for k, t in ipairs(list) do
      out[#out + 1] = not lt.is_tensor(t) and type(t) or
        string.format("%s {%s} strides {%s} at %d, version %d", t.dtype, table.concat(t.shape, ","),
          table.concat({t:stride()}, ","), t:storage_offset(), t._version)
    end
  end
  return table.concat(out, "; ")
end

test("a composite gives compiled the layouts and errors that it gives eager, in each dtype", function()
  every(function(d)
    if not d.composite or d.at_call or examples.shown[d.name] then return nil end
    local line = examples.example(d)
    for _, dtype in ipairs {"float32", "bfloat16", "int64"} do
      local eager = kind_of(pcall(examples.chunk(line, examples.environment(dtype))))
      local compiled = kind_of(pcall(lt.compile(examples.chunk(line, examples.environment(dtype)))))
      if compiled ~= eager then return line .. " of " .. dtype .. ":\n" .. eager .. "\ncompiled:\n" .. compiled end
    end
  end)
end)

-- Composites whose examples put the parts into the graph, and why.
local PARTS = {one_hot = "elements decide the number of classes"}

test("a composite is one node of the graph, but where it aliases, writes or draws", function()
  every(function(d)
    if not d.composite or d.at_call or d.inplace or examples.shown[d.name] then return nil end
    local line, met = examples.example(d), {}
    lt.compile(examples.chunk(line, examples.environment()), {backend = function(graph)
      for _, node in ipairs(graph._nodes) do met[node.op] = true end
    end})()
    local found = false
    for _, form in ipairs(d.forms) do found = found or met[form.op] end
    if not found ~= (PARTS[d.name] ~= nil) then return (found and "a node in " or "no node in ") .. line end
  end)
end)

test("every example runs in each dtype, or the error names the op", function()
  every(function(d)
    local line = examples.example(d)
    if not d.family or examples.shown[d.name] or not pages.casts(line) then return nil end
    local refused = 0
    for _, dtype in ipairs(pages.DTYPES) do
      local ok, message = examples.run(line, dtype)
      local own = d.name:gsub("^nn%.functional%.", ""):gsub("_$", "")
      local named = ok or message:find("^[%w_]*" .. own .. "_?: ") or message:find "^linalg"
      if not named then return dtype .. ": " .. message end
      if not ok then refused = refused + 1 end
    end
    if refused == #pages.DTYPES then return "refused in every dtype" end
  end)
end)

-- The names that cases of tests/oracle call.
local function covered()
  local called = {}
  local operators = {["+"] = "add", ["-"] = "sub", ["*"] = "mul", ["/"] = "div", ["^"] = "pow", ["%"] = "remainder"}
  for file in io.popen("ls ../oracle/references/*.lua"):lines() do
    for row in io.lines(file) do
      local code = row:match "^{name = .*, code = (.*),$" or ""
      for name in code:gmatch '[:."]([%a_][%w_]*)%f[^%w_]' do called[name] = true end
      for sign in code:gmatch " ([-+*/^%%]) " do called[operators[sign]] = true end
    end
  end
  return called
end

-- Ops without a case of their own, and why.
local WITHOUT = {
  cpu = "a move", cuda = "a move", to_dtype = "x:to has the cases", empty = "no elements",
    empty_like = "no elements",
  new_empty = "no elements", ones = "new_ones, ones_like have the cases",
  max_pool1d_with_indices = "max_pool1d's return_indices has the cases",
  adaptive_max_pool1d_with_indices = "adaptive_max_pool1d's return_indices has the cases",
  adaptive_max_pool2d_with_indices = "adaptive_max_pool2d's return_indices has the cases",
  feature_alpha_dropout = "draws where it trains", select_scatter = "tests/ops/gradcheck_test.cc",
    slice_scatter = "tests/ops/gradcheck_test.cc",
  weight_int8pack_mm = "quantized.lua, by PyTorch's formula", weight_int4pack_mm = "quantized.lua, by its own formula",
}

test("every op that draws nothing has a case against PyTorch", function()
  local called = covered()
  local function has_case(d)
    for _, each in ipairs(names.list) do
      if called[each.name:match "[%w_]+$"] and names.page_of(each) == d.name then return true end
    end
    for _, place in ipairs(d.places) do
      if called[place:match "[%w_]+$"] then return true end
    end
    return false
  end
  every(function(d)
    if not d.family or draws(d) or names.page_of(d) ~= d.name then return nil end
    if has_case(d) == (WITHOUT[d.name] ~= nil) then return WITHOUT[d.name] and "has a case now" or "no case" end
  end)
end)

-- The sum of an example's results times fixed numbers, its inputs moved by t along fixed directions; the inputs, the
-- directions. Given `alone`, only that input requires a gradient.
local function weights(x, phase) return lt.arange(x:numel(),
  {dtype = "float64"}):mul(1.7):add(phase):sin():view(x.shape) end
local function sum_at(line, t, alone)
  local env, leaves, directions, sum = examples.environment "float64", {}, {}, nil
  for _, row in ipairs(examples.floats) do
    if line:find("%f[%w_]" .. row[1] .. "%f[^%w_]") then
      local x = env[row[1]]
      directions[#directions + 1] = weights(x, #leaves)
      leaves[#leaves + 1] = (x + directions[#directions] * t):requires_grad_(not alone or alone == #directions)
      env[row[1]] = leaves[#leaves]
    end
  end
  local results = pack(examples.chunk(line, env)())
  if type(results[1]) == "table" then results = results[1] end
  for i, r in ipairs(results) do
    if lt.is_tensor(r) and r.dtype == "float64" and r.requires_grad and r.device == "cpu" then
      local term = (r * weights(r, i)):sum()
      sum = sum and sum + term or term
    end
  end
  return sum, leaves, directions
end

test("gradients of every example are those of central differences", function()
  local checked, step = 0, 1e-5
  every(function(d)
    local line = examples.example(d)
    if not d.family or d.gradient == "none" or draws(d) or d.same_as or not pages.casts(line) then return nil end
    if not examples.run(line, "float64") then return nil end
    local sum, leaves, directions = sum_at(line, 0)
    if not sum then return nil end
    local gradients, slope = {lt.grad(sum, leaves, {allow_unused = true})}, 0
    for i = 1, #leaves do slope = slope + (gradients[i] and (gradients[i] * directions[i]):sum():item() or 0) end
    local here, left, right = sum:item(), sum_at(line, -step):item(), sum_at(line, step):item()
    local wanted = (right - left) / (2 * step)
    local kink = math.abs(right - 2 * here + left) / step > 1e-3 * math.max(1, math.abs(wanted))
    checked = checked + (kink and 0 or 1)
    if not kink and math.abs(slope - wanted) > 1e-5 * math.max(1, math.abs(wanted)) then
      return line .. ": " .. slope .. ", differences " .. wanted
    end
  end)
  truthy(checked > 250, "checked: " .. checked)
end)

test("a gradient is the same where no other input requires one", function()
  local checked = 0
  every(function(d)
    local line = examples.example(d)
    if not d.family or d.gradient == "none" or draws(d) or d.same_as or not pages.casts(line) then return nil end
    if not examples.run(line, "float64") then return nil end
    local sum, leaves = sum_at(line, 0)
    if not sum or #leaves < 2 then return nil end
    local gradients = {lt.grad(sum, leaves, {allow_unused = true})}
    for i = 1, #leaves do
      local own, inputs = sum_at(line, 0, i)
      local ok, gradient = pcall(function() return own and (lt.grad(own, {inputs[i]}, {allow_unused = true})) end)
      if not ok then return line .. ": " .. tostring(gradient) end
      if gradient and not gradient:nan_to_num(7):equal(gradients[i]:nan_to_num(7)) then
        return line .. ": input " .. i .. " alone has another"
      end
      checked = checked + 1
    end
  end)
  truthy(checked > 100, "checked: " .. checked)
end)

h.finish()
