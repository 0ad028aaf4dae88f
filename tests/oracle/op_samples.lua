-- op_samples.lua FILE [floor]: what op_samples.py wrote in; each disagreement, and how many samples of each kind agree, out. Eager and compiled
-- code both count. Fails where fewer than `floor` per cent of the samples agree (default 95); ops that do not exist are counted apart.
local lt = require "lutra"
local inf, nan = math.huge, 0 / 0
assert(lt.nn.functional and lt.linalg) -- loaded before any frame is captured
local tolerance = {float16 = 2 ^ -8, bfloat16 = 2 ^ -5, float32 = 4e-6, float64 = 1e-11}
-- Among equal elements PyTorch's positions are one of several answers.
local ties = {topk = true, sort = true, argsort = true, kthvalue = true, median = true, nanmedian = true}

local function make(recorded)
  local values, n = {}, 1
  for _, size in ipairs(recorded.shape) do n = n * size end
  for i, v in ipairs(recorded) do values[i] = v end
  if n == 0 then return lt.zeros(recorded.shape, {dtype = recorded.dtype}) end
  if recorded.strides then return lt.tensor(values, {dtype = recorded.dtype}):as_strided(recorded.shape, recorded.strides) end
  if #recorded.shape == 0 then return lt.tensor(values[1], {dtype = recorded.dtype}) end
  return lt.tensor(values, {dtype = recorded.dtype}):view(recorded.shape)
end

local function near(v, w, limit)
  if v == w or (v ~= v and w ~= w) then return true end
  return type(v) == "number" and type(w) == "number" and math.abs(w) < inf and math.abs(v - w) <= limit
end

-- Nothing, or what differs. `loosest` is the tolerance of what was computed with: out= may be wider than that.
local function difference(got, want, shapes_only, loosest)
  if type(want) ~= "table" then
    return not near(got, want, 1e-5 * math.abs(tonumber(want) or 0)) and "value " .. tostring(got) .. ", not " .. tostring(want) or nil
  end
  if type(got) ~= "userdata" then return "a " .. type(got) .. " for a tensor" end
  if got.dtype ~= want.dtype then return "dtype " .. got.dtype .. ", not " .. want.dtype end
  local shape, wanted = table.concat(got.shape, ","), table.concat(want.shape, ",")
  if shape ~= wanted then return "shape {" .. shape .. "}, not {" .. wanted .. "}" end
  if shapes_only then return end
  local scale, flat = 0, got:detach():reshape(-1):totable()
  for _, w in ipairs(want) do
    if type(w) == "number" and math.abs(w) < inf then scale = math.max(scale, math.abs(w)) end
  end
  for i, w in ipairs(want) do
    if not near(flat[i], w, math.max(tolerance[want.dtype] or 0, loosest) * scale) then
      return "element " .. (i - 1) .. " is " .. tostring(flat[i]) .. ", not " .. tostring(w)
    end
  end
end

local function differences(got, answers, shapes_only, loosest)
  local first
  for _, want in ipairs(answers) do
    local why = #got ~= #want and "gives " .. #got .. " results, not " .. #want or nil
    for i = 1, why and 0 or #want do why = why or difference(got[i], want[i], shapes_only, loosest) end
    if not why then return end
    first = first or why
  end
  return first
end

local function flattened(n, results)
  local out = {}
  for i = 1, n do
    if type(results[i]) == "table" then
      for _, r in ipairs(results[i]) do out[#out + 1] = r end
    else
      out[#out + 1] = results[i] == nil and false or results[i]
    end
  end
  return out
end

-- Fresh inputs, a fresh prototype: the results, or the error's text.
local function run(sample, compiled)
  local inputs = {}
  for i, recorded in ipairs(sample.inputs) do inputs[i] = make(recorded) end
  local f = assert(loadstring("local lt, inf, nan = ... return function(I) return " .. sample.code .. " end", "=sample"))(lt, inf, nan)
  if compiled then f = lt.compile(f) end
  local function counted(...) return select("#", ...), {...} end
  local ok, n, results = pcall(function() return counted(f(inputs)) end)
  if not ok then return nil, tostring(n) end
  local got = flattened(n, results)
  if sample.kind == "inplace" and got[1] ~= inputs[1] then return nil, "gives another tensor than the one that is written" end
  return got
end

local function check(sample, compiled)
  local got, message = run(sample, compiled)
  if not got and (message:find("attempt to %a+ field") or message:find("has no attribute or method", 1, true)) then return nil, true end
  if sample.error then return got and "accepted, PyTorch says: " .. sample.error or nil end
  if not got then return "refused: " .. message:gsub("\n.*", "") end
  local loosest = 0
  for _, input in ipairs(sample.kind == "out dtype" and sample.inputs or {}) do
    loosest = math.max(loosest, tolerance[input.dtype] or tolerance.float32)
  end
  local why = differences(got, sample.answers, sample.random, loosest)
  return not (why and ties[sample.op] and why:find("^element")) and why or nil
end

local kinds, names, missing, all, bad = {}, {}, 0, 0, 0
for line in io.lines(arg[1]) do
  local sample = assert(loadstring("local inf, nan = ... return " .. line))(inf, nan)
  local why, absent = check(sample)
  if not why and not absent and not sample.error and all % 8 == 0 then
    why = check(sample, true)
    why = why and "compiled: " .. why
  end
  if absent then
    missing = missing + 1
  else
    local kind = kinds[sample.kind]
    if not kind then kind = {all = 0, bad = 0} kinds[sample.kind] = kind names[#names + 1] = sample.kind end
    kind.all, all = kind.all + 1, all + 1
    if why then
      kind.bad, bad = kind.bad + 1, bad + 1
      print(sample.op, sample.kind, why, (sample.code:sub(1, 160)))
    end
  end
end
table.sort(names)
for _, name in ipairs(names) do
  print(string.format("%-10s %6d samples, %6d agree", name, kinds[name].all, kinds[name].all - kinds[name].bad))
end
local rate = 100 * (1 - bad / math.max(all, 1))
print(string.format("%d samples, %.2f %% agree; %d more are of names that do not exist", all, rate, missing))
os.exit(rate >= tonumber(arg[2] or 95) and 0 or 1)
