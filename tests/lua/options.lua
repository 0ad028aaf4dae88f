-- Tests that an options table whose values are all nil, `{bias = cfg.bias}`, is an empty table and means no options:
-- f(needed ..., {}) is f(needed ...) for ops, functionals, modules, optimisers, schedulers and data classes, after any
-- number of positional arguments.
local h = require "harness"
local lt = require "lutra"
local nn, optim, F = lt.nn, lt.optim, lt.nn.functional
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

math.randomseed(tonumber(os.getenv("LUTRA_FUZZ_SEED")) or 1)
local random = math.random

-- Ops: arguments are drawn by their types until a call succeeds -------------------------------------------------------

local shapes = {{2, 3}, {3, 3}, {3}, {1, 4, 8, 8}, {2, 4, 8}, {2, 2, 3, 3}, {}, {4}, {2, 4}, {4, 2}, {2, 2, 2}, {9, 4},
  {1, 4, 6, 6, 6}}
local common -- the shape of all tensors of a call, where there is one
local function tensor()
  local shape, kind = common or shapes[random(#shapes)], random(8)
  if kind == 1 then return lt.randint(0, 2, shape) end
  if kind == 2 then return lt.rand(shape):gt(0.5) end
  return lt.rand(shape)
end
local function tensors()
  local shape, out = shapes[random(#shapes)], {}
  for i = 1, random(2) do out[i] = lt.rand(shape) end
  return out
end
local lists = {{0}, {1}, {2}, {2, 3}, {0, 1}, {1, 1}, {3, 3}, {3}, {4}, {2, 2}, {1, 2}, {8, 8}, {0, 1, 2, 3}}
local words = {"mean", "sum", "reflect", "constant", "nearest", "fro", "ij", "cpu", "i,i->i", "none", "right", "left"}
local draw = {
  ["Tensor"] = tensor, ["Tensor or number"] = tensor, ["list of Tensors"] = tensors,
  ["number"] = function() return ({0, 1, 0.5, 2, 4})[random(5)] end, ["integer"] = function() return random(-1, 4) end,
  ["integers"] = function() return lists[random(#lists)] end, ["boolean"] = function() return random(2) == 1 end,
  ["dtype"] = function() return ({"float32", "int64", "float64"})[random(3)] end,
    ["device"] = function() return "cpu" end,
  ["string"] = function() return words[random(#words)] end,
}
local function value_of(arg) return draw[(arg.type:gsub(" or nil$", ""))]() end

-- Defaults that can be written by position.
local function default_of(arg)
  if arg.default == nil or arg.default == "nil" then return nil, true end
  local chunk = loadstring("return " .. arg.default)
  if chunk then return chunk(), true end
  return nil, false
end

local function text_of(ok, ...)
  if not ok then return "error " .. tostring((...)) end
  local out = {}
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if type(v) == "table" then v = text_of(true, unpack(v)) end
    out[i] = tostring(v)
  end
  return table.concat(out, "; ")
end

local function result(f, args, n)
  local fresh = {}
  for i = 1, n do fresh[i] = lt.is_tensor(args[i]) and args[i]:clone() or args[i] end
  lt.manual_seed(3)
  return pcall(f, unpack(fresh, 1, n))
end

-- `{}` is a list there: integers that are needed or may be nil.
local function takes_list(arg)
  if arg.keyword_only then return false end
  if arg.type:find "^integers" then return arg.default == nil or arg.default == "nil" end
  return arg.type:find "^list" and arg.default == nil
end

-- Returns whether some call of this form succeeds. Each that does is repeated with an empty table.
local function check_form(name, f, form)
  local needed, positional = 0, 0
  for i, arg in ipairs(form) do
    if not arg.keyword_only then
      positional = i
      if arg.default == nil then needed = i end
    end
  end
  local found = 0
  for _ = 1, 600 do
    local args, n = {}, needed
    common = random(3) == 1 and shapes[random(3)] or nil
    for i = 1, needed do args[i] = value_of(form[i]) end
    local ok = result(f, args, n)
    for extra = 0, ok and positional - needed or -1 do
      n = needed + extra
      if extra > 0 then
        local usable
        args[n], usable = default_of(form[n])
        if not usable then break end
      end
      local want = text_of(result(f, args, n))
      if not want:find "^error" and not (form[n + 1] and takes_list(form[n + 1])) then
        args[n + 1] = {}
        local got = text_of(result(f, args, n + 1))
        args[n + 1] = nil
        if got ~= want then
          error(string.format("%s with %d arguments and {}: got %s, want %s", name, n, got, want), 0)
        end
        found = found + 1
      end
    end
    if ok and found > 3 then break end
  end
  return found > 0
end

local skip = {free = true, set_num_threads = true, reset = true, data_ptr = true, cuda = true, pin_memory = true,
  is_tensor = true, save = true,
  load = true, empty = true, empty_like = true, empty_strided = true, empty_permuted = true,
  new_empty = true, new_empty_strided = true,
    resize_ = true, resize_as_ = true, randperm = true, manual_seed = true, set_autocast_enabled = true,
  set_autocast_dtype = true, set_autocast_cache_enabled = true, set_grad_enabled = true, set_default_device = true}

test("ops", function()
  local seen, missed, count = {}, {}, 0
  local function check(name, f)
    local d = not skip[name] and not seen[name] and type(f) == "function" and lt._native.describe(f)
    if not d or #d.forms == 0 then return end
    seen[name] = true
    local any = false
    -- Overloads: a call means what the first that fits says.
    if #d.forms == 1 then any = check_form(name, f, d.forms[1]) else any = nil end
    count = count + 1
    if any == false then missed[#missed + 1] = name end
  end
  for name, f in pairs(lt) do check(name, f) end
  local x = lt.ones(1)
  for name in pairs(lt._native.names().methods) do check(name, x[name]) end
  table.sort(missed)
  truthy(count > 350, "ops checked: " .. count)
  truthy(#missed < 60, "no arguments found for " .. table.concat(missed, ", "))
end)

test("ops whose arguments have to fit", function()
  local v, m, b = lt.rand(3), lt.rand(3, 3), lt.rand(2, 3, 3)
  local at, mask = lt.tensor({0, 2}, {dtype = "int64"}), lt.rand(3, 3):gt(0.5)
  for _, call in ipairs {
    {lt.addbmm, m, b, b}, {lt.addmm, m, m, m}, {lt.addmv, v, m, v}, {lt.addr, m, v, v}, {lt.baddbmm, b, b, b},
      {lt.bmm, b, b}, {lt.clamp, m, 0},
    {lt.clamp, m, 0, 1}, {lt.index_add, m, 0, at, lt.rand(2, 3)}, {lt.index_copy, m, 0, at, lt.rand(2, 3)},
      {lt.arange, 3}, {lt.arange, 1, 3},
    {lt.index_reduce, m, 0, at, lt.rand(2, 3), "prod"}, {lt.masked_fill, m, mask, 1},
      {lt.scatter_add, m, 0, lt.zeros(3, 3):long(), m},
    {lt.scatter_reduce, m, 0, lt.zeros(3, 3):long(), m, "sum"}, {lt.index_put, m, {at}, lt.tensor(1)},
      {F.bilinear, m, m, lt.rand(2, 3, 3)},
  } do
    local f, n = call[1], #call
    local want = text_of(f(unpack(call, 2, n)))
    call[n + 1] = {}
    equal(text_of(f(unpack(call, 2, n + 1))), want)
  end
end)

test("ops with several forms, and losses whose table holds nil", function()
  local x, y, w = lt.rand(4, 3), lt.tensor({0, 2, 1, 1}, {dtype = "int64"}), lt.rand(2, 3, 3, 3)
  local image = lt.rand(1, 3, 8, 8)
  for _, call in ipairs {
    {F.cross_entropy, x, y}, {F.softmax, x, 1}, {F.conv2d, image, w}, {F.conv2d, image, w, nil},
      {F.conv2d, image, w, nil, 1},
    {F.max_pool2d, image, 2, 2}, {F.avg_pool2d, image, 2, 2}, {F.nll_loss, x:log_softmax(1), y}, {F.layer_norm, x, {3}},
    {F.batch_norm, x, nil, nil, nil, nil, true}, {F.group_norm, x, 3}, {F.dropout, x, 0.5, false}, {x.max, x},
      {x.max, x, 1}, {x.std, x},
    {x.std, x, 1}, {x.to, x, "float64"}, {x.argmax, x}, {lt.tensor, {1, 2}}, {lt.tensor, 3},
    {x.repeat_interleave, x, 2}, {lt.arange, 3}, {x.norm, x}, {x.sort, x}, {x.sort, x, 1}, {x.split, x, 2},
  } do
    local f = call[1]
    local n = table.maxn(call)
    local want = text_of(pcall(f, unpack(call, 2, n)))
    truthy(not want:find "^error", want)
    call[n + 1] = {}
    equal(text_of(pcall(f, unpack(call, 2, n + 1))), want)
    local compiled = lt.compile(function(...) return f(...) end)
    equal(text_of(pcall(compiled, unpack(call, 2, n + 1))), want)
    lt.reset()
  end
end)

test("an empty list is a list where one is needed or reduces over no dimension", function()
  local x = lt.rand(2, 3)
  equal(lt.zeros({}):dim(), 0)
  equal(lt.ones(1):view({}):dim(), 0)
  equal(x:sum({}):item(), x:sum():item())
  equal(lt.rand(1, 2):squeeze({}):dim(), 2) -- no dimension is dropped
  raises("argument 'other' must be", x.add, x, {})
  raises("argument 'mat2' must be", x.mm, x, {})
end)

-- Modules -------------------------------------------------------------------------------------------------------------

local needed = {
  Linear = {3, 4}, Bilinear = {2, 3, 4}, Conv1d = {2, 4, 3}, Conv2d = {2, 4, 3}, ConvTranspose1d = {2, 4, 3},
    ConvTranspose2d = {2, 4, 3},
  MaxPool1d = {2}, MaxPool2d = {2}, FractionalMaxPool2d = {2, 3}, LPPool1d = {2, 2}, LPPool2d = {2, 2},
  MaxUnpool1d = {2}, MaxUnpool2d = {2}, AvgPool1d = {2}, AvgPool2d = {2},
    AdaptiveAvgPool1d = {2}, AdaptiveAvgPool2d = {2},
  AdaptiveMaxPool1d = {2}, AdaptiveMaxPool2d = {2}, BatchNorm1d = {4}, BatchNorm2d = {4}, BatchNorm3d = {4},
    InstanceNorm1d = {4},
  InstanceNorm2d = {4}, GroupNorm = {2, 4}, LayerNorm = {4}, RMSNorm = {4}, Embedding = {5, 4},
    MultiheadAttention = {4, 2},
  TransformerEncoderLayer = {4, 2}, TransformerDecoderLayer = {4, 2}, TransformerEncoder = {nn.Identity(), 1},
    TransformerDecoder = {nn.Identity(), 1},
  Transformer = {4, 2, 1, 1, 4}, EmbeddingBag = {5, 4}, RNN = {3, 4}, GRU = {3, 4}, LSTM = {3, 4}, RNNCell = {3, 4},
    GRUCell = {3, 4}, LSTMCell = {3, 4},
  ParameterList = {}, ParameterDict = {}, Softmax = {1}, LogSoftmax = {1}, Softmin = {1}, PixelShuffle = {2},
    PixelUnshuffle = {2}, ChannelShuffle = {2},
  LazyLinear = {4}, LazyConv1d = {4, 3}, LazyConv2d = {4, 3}, LazyConvTranspose1d = {4, 3},
    LazyConvTranspose2d = {4, 3},
  Unflatten = {1, {2, 2}}, Unfold = {2}, Fold = {{4, 4}, 2}, LocalResponseNorm = {2}, Threshold = {0.5, 1},
    Sequential = {}, ModuleList = {}, ModuleDict = {}, QuantizedLinear = {nn.Linear(4, 2)},
}
for dims = 1, 3 do
  for _, kind in ipairs {"Zero", "Reflection", "Replication", "Circular"} do
    needed[kind .. "Pad" .. dims .. "d"] = {1}
  end
  needed["ConstantPad" .. dims .. "d"] = {1, 0.5}
end

local function module_text(class, args, n)
  lt.manual_seed(5)
  local m = class(unpack(args, 1, n))
  local parts = {tostring(m)}
  for name, p in m:named_parameters() do parts[#parts + 1] = name .. tostring(p) end
  for name, b in m:named_buffers() do parts[#parts + 1] = name .. tostring(b) end
  return table.concat(parts, "\n")
end

test("modules", function()
  local count = 0
  for name, class in pairs(lt._native.lazy.all(nn)) do
    if type(class) == "table" and rawget(class, "_is_module") and name ~= "Module" and name ~= "SyncBatchNorm" then
      local args = needed[name] or {}
      local n = #args
      local want = module_text(class, args, n)
      args[n + 1] = {}
      equal(module_text(class, args, n + 1), want, name)
      args[n + 1] = nil
      count = count + 1
    end
  end
  truthy(count > 90, "classes: " .. count)
  equal(tostring(nn.Conv2d(3, 8, 3, 2, {})), tostring(nn.Conv2d(3, 8, 3, 2)))
  raises("argument 'stride' must be a number or a list of 2, got a table", nn.Conv2d, 3, 8, 3, {}, 1) -- not at the end
end)

test("arguments of modules by name alone", function()
  for name, args in pairs {
    Linear = {in_features = 3, out_features = 4}, LayerNorm = {normalized_shape = 4},
      Embedding = {num_embeddings = 3, embedding_dim = 2},
    Dropout = {p = 0.25}, Flatten = {start_dim = 0}, ReflectionPad1d = {padding = 1},
      PixelShuffle = {upscale_factor = 2}, Softmax = {dim = 0},
    GroupNorm = {num_groups = 2, num_channels = 4}, MultiheadAttention = {embed_dim = 4, num_heads = 2},
      ConstantPad1d = {padding = 1, value = 2},
  } do
    nn[name](args)
    args.no_such_option = 1
    raises("unknown option 'no_such_option'", nn[name], args)
  end
end)

-- Optimisers, schedulers, data ----------------------------------------------------------------------------------------

local function plain(t)
  local keys, out = {}, {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do
    out[i] = tostring(key) .. "=" .. (type(t[key]) == "table" and plain(t[key]) or tostring(t[key]))
  end
  return "{" .. table.concat(out, ",") .. "}"
end

local schedules = {StepLR = {2}, MultiStepLR = {{2, 4}}, ExponentialLR = {0.9}, CosineAnnealingLR = {10},
  CosineAnnealingWarmRestarts = {5},
  OneCycleLR = {0.1, 10}, LambdaLR = {function(e) return 0.9 ^ e end}, MultiplicativeLR = {function() return 0.9 end}}

test("optimisers and schedulers", function()
  local count = 0
  for name, class in pairs(lt._native.lazy.all(optim)) do
    if type(class) == "table" and rawget(class, "defaults") then
      local p = lt.ones(2, {requires_grad = true})
      equal(plain(class({p}, {}).defaults), plain(class({p}).defaults), name)
      count = count + 1
    end
  end
  truthy(count >= 12, "optimisers: " .. count)
  for name, class in pairs(optim.lr_scheduler) do
    if name ~= "SequentialLR" and name ~= "ChainedScheduler" then
      local args = schedules[name] or {}
      local n = #args
      local opt = function() return optim.SGD({lt.ones(2, {requires_grad = true})}, {lr = 0.5}) end
      local want = plain(class(opt(), unpack(args, 1, n)):state_dict())
      args[n + 1] = {}
      equal(plain(class(opt(), unpack(args, 1, n + 1)):state_dict()), want, name)
    end
  end
end)

test("data and other functions", function()
  local set = lt.data.TensorDataset(lt.rand(4, 2))
  local loader = lt.data.DataLoader(set, {})
  equal(loader:len(), 4)
  truthy(lt.progress(loader, {}))
  truthy(lt.compile(function(x) return x end, {}))
  truthy(lt.explain(function(x) return x + 1 end, {})(lt.ones(1)))
  truthy(lt.Generator({}))
  truthy(nn.Parameter(lt.ones(1), {}).requires_grad)
  equal(nn.Parameter(lt.ones(1), {requires_grad = false}).requires_grad, false)
  local t = lt.ones(2, 2)
  for name, f in pairs(nn.init) do
    if name:find "_$" and name:sub(1, 1) ~= "_" and name ~= "constant_" and name ~= "sparse_" then
      truthy(f(name == "dirac_" and lt.ones(2, 2, 1) or t, {}))
    end
  end
  local p = lt.ones(2, {requires_grad = true})
  p:sum():backward({})
  truthy(lt.grad((p * 2):sum(), p, {}))
  nn.utils.clip_grad_norm_({p}, 1, {})
  local net = nn.Linear(2, 2)
  net:to("float64", {})
  net:zero_grad({})
  net:load_state_dict(net:state_dict(), {})
  net:register_buffer("b", lt.ones(1), {})
  lt.autocast("cpu", {}, function() end)
end)

h.finish()
