-- op_samples.lua FILE [floor]: what op_samples.py wrote in; each disagreement, and how many samples of each kind agree,
-- out. Eager and compiled code both count. Fails where fewer than `floor` per cent of the samples agree (default 95);
-- ops that do not exist are counted apart.
local lt = require "lutra"
local inf, nan = math.huge, -(0 / 0) -- without a sign
assert(lt.nn.functional and lt.linalg) -- loaded before any frame is captured
local tolerance = {float16 = 2 ^ -8, bfloat16 = 2 ^ -5, float32 = 4e-6, float64 = 1e-11}
local bytes = {float64 = 8, int64 = 8, float32 = 4, int32 = 4, float16 = 2, bfloat16 = 2, int16 = 2}

local function make(recorded)
  local values, n = {}, 1
  for _, size in ipairs(recorded.shape) do n = n * size end
  for i, v in ipairs(recorded) do values[i] = v end
  if n == 0 then return lt.zeros(recorded.shape, {dtype = recorded.dtype}) end
  if recorded.strides then
    return lt.tensor(values, {dtype = recorded.dtype}):as_strided(recorded.shape, recorded.strides)
  end
  if #recorded.shape == 0 then return lt.tensor(values[1], {dtype = recorded.dtype}) end
  return lt.tensor(values, {dtype = recorded.dtype}):view(recorded.shape)
end

local function near(v, w, limit)
  if v == w or (v ~= v and w ~= w) then return true end
  return type(v) == "number" and type(w) == "number" and math.abs(w) < inf and math.abs(v - w) <= limit
end

-- Nothing, or what differs. `loosest` is the tolerance of what was computed with: out= may be wider than that. An
-- element may differ by so much of the largest one, and of `scale`.
local function difference(got, want, shapes_only, loosest, scale)
  if type(want) ~= "table" then
    return not near(got, want, 1e-5 * math.abs(tonumber(want) or 0)) and "value " .. tostring(got) .. ", not "
      .. tostring(want) or nil
  end
  if type(got) ~= "userdata" then return "a " .. type(got) .. " for a tensor" end
  if got.dtype ~= want.dtype then return "dtype " .. got.dtype .. ", not " .. want.dtype end
  local shape, wanted = table.concat(got.shape, ","), table.concat(want.shape, ",")
  if shape ~= wanted then return "shape {" .. shape .. "}, not {" .. wanted .. "}" end
  if shapes_only then return end
  local flat = got:detach():reshape(-1):totable()
  scale = scale or 0
  for _, w in ipairs(want) do
    if type(w) == "number" and math.abs(w) < inf then scale = math.max(scale, math.abs(w)) end
  end
  for i, w in ipairs(want) do
    if not near(flat[i], w, math.max(tolerance[want.dtype] or 0, loosest) * scale) then
      return "element " .. (i - 1) .. " is " .. tostring(flat[i]) .. ", not " .. tostring(w)
    end
  end
end

-- Whether a result lies in the memory that PyTorch's lies in.
local function memory_difference(got, want, inputs)
  if type(want) ~= "table" or got:numel() == 0 then return end
  if want.of then
    local behind = got:data_ptr() - inputs[want.of]:data_ptr()
    if behind ~= want.behind then return "not where PyTorch has it in the memory of input " .. want.of end
    for d, stride in ipairs({got:stride()}) do
      if got.shape[d] ~= 1 and stride ~= want.laid[d] then
        return "stride " .. stride .. " of dimension " .. (d - 1) .. ", not " .. want.laid[d]
      end
    end
    return
  end
  for i, input in ipairs(inputs) do
    local last = 0
    for d, stride in ipairs({input:stride()}) do last = last + (input.shape[d] - 1) * stride end
    local behind = got:data_ptr() - input:data_ptr()
    if input:numel() > 0 and behind >= 0 and behind <= last * (bytes[input.dtype] or 1) then
      return "in the memory of input " .. i
    end
  end
end

-- PyTorch's positions with ours where the elements of `input` along dim are the same there; ours must be different
-- ones.
local function without_ties(got, want, input, dim)
  if type(got) ~= "userdata" or type(want) ~= "table" or got.dtype ~= "int64" or want.dtype ~= "int64" then
    return want
  end
  if table.concat(got.shape, ",") ~= table.concat(want.shape, ",") or got:numel() == 0 then return want end
  if input.dtype == "bool" then input = input:to("uint8") end
  local theirs, ours = make(want), got
  local reduced = #want.shape < #input.shape
  if reduced then theirs, ours = theirs:unsqueeze(dim), ours:unsqueeze(dim) end
  if ours:dim() ~= input:dim() or ours:min():item() < 0 or ours:max():item() >= input:size(dim) then return want end
  local a, b = input:gather(dim, ours), input:gather(dim, theirs)
  local same = a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))
  local sorted = ours:sort(dim)
  if ours:size(dim) > 1 and sorted:diff(1, dim):eq(0):any():item() then return want end
  local merged = lt.where(same, ours, theirs):reshape(-1):totable()
  merged.dtype, merged.shape = want.dtype, want.shape
  return merged
end

local function differences(got, answers, sample, inputs, loosest)
  local first
  for _, want in ipairs(answers) do
    local why = #got ~= #want and "gives " .. #got .. " results, not " .. #want or nil
    for i = 1, why and 0 or #want do
      local wanted = want[i]
      if sample.ties and not why then wanted = without_ties(got[i], wanted, inputs[1], sample.ties) end
      why = why or difference(got[i], wanted, sample.random, loosest) or memory_difference(got[i], want[i], inputs)
    end
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

-- Fresh inputs, a fresh prototype: the results and the inputs, or the error's text.
local function run(sample, compiled)
  local inputs = {}
  for i, recorded in ipairs(sample.inputs) do
    inputs[i] = make(recorded)
    if sample.grads and sample.grads[i] ~= nil and tolerance[recorded.dtype] then
      inputs[i] = inputs[i]:detach():requires_grad_()
    end
  end
  local f = assert(loadstring("local lt, inf, nan = ... return function(I) return " .. sample.code .. " end",
    "=sample"))(lt, inf, nan)
  if compiled then f = lt.compile(f) end
  local function counted(...) return select("#", ...), {...} end
  local ok, n, results = pcall(function() return counted(f(inputs)) end)
  if not ok then return nil, tostring(n) end
  local got = flattened(n, results)
  if sample.kind == "inplace" and got[1] ~= inputs[1] then
    return nil, "gives another tensor than the one that is written"
  end
  return got, inputs
end

-- The gradients of the inputs, held to PyTorch's.
local function gradient_difference(sample, got, inputs)
  local outputs, cotangents, wanted, names = {}, {}, {}, {}
  for i, cotangent in ipairs(sample.cotangents) do
    if (cotangent and true) ~= got[i].requires_grad then
      return "result " .. i .. (cotangent and " requires no grad" or " requires grad")
    end
    if cotangent then outputs[#outputs + 1], cotangents[#cotangents + 1] = got[i], make(cotangent) end
  end
  for i, input in ipairs(inputs) do
    if input.requires_grad then wanted[#wanted + 1], names[#names + 1] = input, i end
  end
  if #outputs == 0 or sample.ties then return end -- among equal elements the gradient has several places
  local ok,
    grads = pcall(function() return {lt.grad(outputs, wanted, {grad_outputs = cotangents, allow_unused = true})} end)
  if not ok then return "backward: " .. tostring(grads):gsub("\n.*", "") end
  for k, i in ipairs(names) do
    local want = sample.grads[i]
    if want and grads[k] == nil then
      for _, v in ipairs(want) do
        if v ~= 0 then return "no gradient of input " .. i end
      end
    elseif grads[k] ~= nil then
      if not want then
        if grads[k]:ne(0):any():item() then return "a gradient of input " .. i .. " that PyTorch has not" end
      else
        local why = difference(grads[k], want, false, 8 * tolerance[want.dtype], 2) -- the largest cotangent
        if why then return "gradient of input " .. i .. ": " .. why end
      end
    end
  end
end

-- Allowed differences: the op, a pattern of the error, at most so many per cent of the op's samples, and the reason. If
-- a file has 20 of PyTorch's own samples of the op, one of them must differ so. on_purpose: docs/from_pytorch.md lists
-- the difference. Otherwise it is an option that does not exist yet.
local exceptions = {
  {op = "nn.functional.softmin", says = "argument 'dim' is missing", most = 10, on_purpose = true,
    why = "PyTorch guesses a dimension, and warns"},
  {op = "nn.functional.embedding_bag", says = "max_norm is not implemented", most = 40, why = "it writes the weight"},
  {op = "nn.functional.grid_sample", says = "grid of 4 dimensions", most = 50, why = "volumes"},
  {op = "linalg.norm", says = "ord 'nuc' is not known", most = 10, why = "singular values"},
  {op = "linalg.norm", says = "ord %-?2 is not known", most = 10, why = "singular values"},
  {op = "linalg.matrix_norm", says = "ord 'nuc' is not known", most = 20, why = "singular values"},
  {op = "linalg.matrix_norm", says = "ord %-?2 is not known", most = 20, why = "singular values"},
  {op = "linalg.matrix_power", says = "invert the matrix first", most = 40, why = "inverses"},
}
local exceptions_of = {} -- by op
for _, e in ipairs(exceptions) do
  e.met = 0
  exceptions_of[e.op] = exceptions_of[e.op] or {}
  table.insert(exceptions_of[e.op], e)
end

-- Returns whether the sample's code calls a name that Lutra does not have.
local function is_absent(sample, message)
  local name = message:match("^sample:1: attempt to call field '([%w_]+)' %(a nil value%)")
    or message:match("^sample:1: .*has no attribute or method '([%w_]+)'")
  return name and sample.code:find("[.:]" .. name .. "%(")
end

local function exception_of(sample, message)
  for _, e in ipairs(exceptions_of[sample.op] or {}) do
    if message:find(e.says) then return e end
  end
end

-- Returns the difference, or nil and "absent" or "on purpose".
local function check(sample, compiled)
  local got, inputs = run(sample, compiled)
  local message = inputs
  if not got and is_absent(sample, message) then return nil, "absent" end
  if sample.error then return got and "accepted, PyTorch says: " .. sample.error or nil end
  local e = not got and exception_of(sample, message)
  if e then
    e.met = e.met + 1
    return nil, e.on_purpose and "on purpose" or "absent"
  end
  if not got then return "refused: " .. message:gsub("\n.*", "") end
  local loosest = 0
  for _, input in ipairs(sample.kind == "out dtype" and sample.inputs or {}) do
    loosest = math.max(loosest, tolerance[input.dtype] or tolerance.float32)
  end
  return differences(got, sample.answers, sample, inputs, loosest)
    or sample.grads and gradient_difference(sample, got, inputs) or nil
end

-- dtype, shape and strides of each input.
local function told(inputs)
  local texts = {}
  for i, t in ipairs(inputs) do
    texts[i] = t.dtype .. "{" .. table.concat(t.shape, ",") .. "}"
      .. (t.strides and ":" .. table.concat(t.strides, ",") or "")
  end
  return table.concat(texts, " ")
end

local kinds, names, apart, all, bad = {}, {}, {absent = 0, ["on purpose"] = 0}, 0, 0
local samples_of, own_of = {}, {} -- by op; own: PyTorch's, unchanged
for line in io.lines(arg[1]) do
  local sample = assert(loadstring("local inf, nan = ... return " .. line))(inf, nan)
  samples_of[sample.op] = (samples_of[sample.op] or 0) + 1
  if sample.kind == "base" then own_of[sample.op] = (own_of[sample.op] or 0) + 1 end
  local why, absent = check(sample)
  if not why and not absent and not sample.error and all % 8 == 0 then
    why = check(sample, true)
    why = why and "compiled: " .. why
  end
  if absent then
    apart[absent] = apart[absent] + 1
  else
    local kind = kinds[sample.kind]
    if not kind then kind = {all = 0, bad = 0} kinds[sample.kind] = kind names[#names + 1] = sample.kind end
    kind.all, all = kind.all + 1, all + 1
    if why then
      kind.bad, bad = kind.bad + 1, bad + 1
      print(sample.op, sample.kind, (why:gsub("\n", " ")), (sample.code:sub(1, 160)), told(sample.inputs))
    end
  end
end
table.sort(names)
for _, name in ipairs(names) do
  print(string.format("%-10s %6d samples, %6d agree", name, kinds[name].all, kinds[name].all - kinds[name].bad))
end
local rate = 100 * (1 - bad / math.max(all, 1))
print(string.format(
  "%d samples, %.2f %% agree; %d more are of names or options that do not exist, %d differ on purpose", all, rate,
  apart.absent, apart["on purpose"]))
local wrong = 0
for _, e in ipairs(exceptions) do
  local of = samples_of[e.op] or 0
  local told = e.met == 0 and (own_of[e.op] or 0) >= 20 and "no longer occurs"
    or e.met * 100 > e.most * of and "occurs too often"
  if told then
    wrong = wrong + 1
    print(string.format("exception %s, %s: %s, in %d of %d samples", e.op, e.says, told, e.met, of))
  end
end
os.exit(rate >= tonumber(arg[2] or 95) and wrong == 0 and 0 or 1)
