-- Tests names that ports of real models need: layers that resample, submodules by their path, initialisers, finfo and
-- iinfo.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep, truthy = h.test, h.equal, h.deep, h.truthy
local nn = lt.nn
local F = nn.functional

local function raises(message, f, ...)
  local ok, got = pcall(f, ...)
  truthy(not ok and tostring(got):find(message, 1, true), "'" .. tostring(got) .. "' says '" .. message .. "'; it")
end

local function same(layer, x, wanted)
  truthy(layer(x):equal(wanted), "eager")
  truthy(lt.compile(layer)(x):equal(wanted), "compiled")
end

test("layers that resample", function()
  local x = lt.randn(1, 2, 4, 6)
  same(nn.Upsample {scale_factor = 2}, x, F.interpolate(x, nil, 2))
  same(nn.Upsample({3, 5}, nil, "bicubic", true), x, F.interpolate(x, {3, 5}, nil, "bicubic", true))
  same(nn.UpsamplingNearest2d(5), x, F.upsample_nearest(x, 5))
  same(nn.UpsamplingBilinear2d {scale_factor = 2}, x, F.upsample_bilinear(x, nil, 2))
  same(nn.Unfold(2, {stride = 2}), x, F.unfold(x, 2, 1, 0, 2))
  local columns = F.unfold(x, 2, 1, 0, 2)
  same(nn.Fold({4, 6}, 2, {stride = 2}), columns, x)
  same(nn.LocalResponseNorm(2), x, F.local_response_norm(x, 2))
  same(nn.Softmax2d(), x, lt.softmax(x, 1))
  equal(tostring(nn.UpsamplingNearest2d {size = {2, 3}}), "UpsamplingNearest2d(size=(2, 3))")
  raises("missing", nn.Unfold)
  raises("Softmax2d", nn.Softmax2d(), lt.randn(2, 2))
  local values, indices = nn.AdaptiveMaxPool2d(2, {return_indices = true})(x)
  truthy(values:equal(x:flatten(2):gather(2, indices:flatten(2)):view(1, 2, 2, 2)), "the places of the largest")
end)

test("area of volumes", function()
  local x = lt.arange(64):view(1, 1, 4, 4, 4):float()
  local means = x:view(1, 1, 2, 2, 2, 2, 2, 2):mean({3, 5, 7})
  truthy(F.interpolate(x, 2, nil, "area"):equal(means), "means of windows")
end)

test("fake quantisation by tensors is that by numbers", function()
  local x = lt.randn(50) * 3
  local scale, zero = lt.tensor(0.25), lt.tensor(3):int()
  truthy(lt.fake_quantize_per_tensor_affine(x, scale, zero, 0,
    15):equal(lt.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)))
end)

test("parts of a module by their path", function()
  local net = nn.Sequential {{"up", nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))}, {"act", nn.ReLU()}}
  truthy(rawequal(net:get_submodule "up", net.up), "a child")
  truthy(rawequal(net:get_submodule "up.0", net.up[1]), "a child's item")
  truthy(rawequal(net:get_submodule "", net), "itself")
  truthy(rawequal(net:get_parameter "up.0.weight", net.up[1].weight), "a parameter")
  truthy(rawequal(net:get_buffer "up.1.running_mean", net.up[2].running_mean), "a buffer")
  raises("has no module 'down'", net.get_submodule, net, "down")
  raises("has no parameter 'up.0.scale'", net.get_parameter, net, "up.0.scale")
end)

test("initialisers", function()
  lt.manual_seed(1)
  local t = nn.init.trunc_normal_(lt.empty(4000), {mean = 1, std = 2, a = -1, b = 2})
  truthy(t:min():item() >= -1 and t:max():item() <= 2, "within the bounds")
  truthy(math.abs(t:mean():item() - 0.60) < 0.05, "the mean of the truncated distribution")
  deep(nn.init.eye_(lt.empty(2, 3)):tolist(), {{1, 0, 0}, {0, 1, 0}})
  local x = lt.randn(1, 4, 5)
  truthy(F.conv1d(x, nn.init.dirac_(lt.empty(4, 4, 3)), nil, 1, 1):equal(x), "dirac_ gives the input")
  truthy(F.conv1d(x, nn.init.dirac_(lt.empty(4, 2, 3), {groups = 2}), nil, 1, 1, 1, 2):equal(x), "dirac_ in groups")
  raises("2 dimensions", nn.init.eye_, lt.empty(2))
  raises("groups", nn.init.dirac_, lt.empty(3, 2, 3), 2)
end)

test("orthogonal_ and sparse_", function()
  lt.manual_seed(3)
  for _, shape in ipairs {{3, 5}, {5, 3}, {4, 2, 3}, {6, 2, 2}, {1, 4}} do
    local t = nn.init.orthogonal_(lt.empty(shape, {dtype = "float64"}), 2):flatten(1)
    if t:size(0) > t:size(1) then t = t:t() end
    truthy(t:mm(t:t()):allclose(lt.eye(t:size(0), {dtype = "float64"}) * 4, 1e-10, 1e-10), table.concat(shape, " "))
  end
  local weight = nn.Linear(4, 4).weight
  truthy(rawequal(nn.init.orthogonal_(weight), weight) and weight.requires_grad)
  raises("at least 2 dimensions", nn.init.orthogonal_, lt.empty(2))
  local sparse = nn.init.sparse_(lt.empty(10, 4), 0.25)
  deep(sparse:eq(0):sum(0):tolist(), {3, 3, 3, 3})
  raises("2 dimensions", nn.init.sparse_, lt.empty(2), 0.5)
end)

test("recurrent layers: wrong calls", function()
  local x = lt.ones(4, 2, 3)
  raises("LSTM: argument 'hidden_size' must be a whole number >= 1, got number 0", nn.LSTM, 2, 0)
  raises("proj_size must be smaller than hidden_size", nn.LSTM, 2, 3, {proj_size = 3})
  raises("GRU: unknown option 'proj_size'", nn.GRU, 2, 3, {proj_size = 1})
  raises("argument 'dropout' must be a number from 0 to 1", nn.GRU, 2, 3, {dropout = 2})
  raises("argument 'nonlinearity' must be 'tanh' or 'relu'", nn.RNN, 2, 3, {nonlinearity = "gelu"})
  raises("LSTM: input has 3 features, input_size is 2", nn.LSTM(2, 3), x)
  raises("expected an input of 2 or 3 dimensions, got 1", nn.GRU(2, 3), lt.ones(2))
  raises("argument 'hx' must be a list {h_0, c_0}, got a Tensor", nn.LSTM(3, 3), x, lt.ones(1, 2, 3))
  raises("expected hx of size {1, 2, 5}, got {1, 1, 5}", nn.GRU(3, 5), x, lt.ones(1, 1, 5))
  raises("hx must have as many, got 2", nn.GRU(3, 5), x, lt.ones(1, 5))
  raises("LSTMCell: hx[2] has 4 features, expected 5", nn.LSTMCell(3, 5), lt.ones(2, 3), {lt.ones(2, 5), lt.ones(2, 4)})
  raises("does not go with hx of size {1, 5}", nn.GRUCell(3, 5), lt.ones(2, 3), lt.ones(1, 5))
  equal(tostring(nn.LSTM(2, 3, 2, {bidirectional = true, bias = false})),
    "LSTM(2, 3, num_layers=2, bias=False, bidirectional=True)")
  lt.manual_seed(1)
  local out, last = nn.LSTM(3, 4, 2, {dropout = 0.5})(x)
  deep(out.shape, {4, 2, 4})
  deep(last[1].shape, {2, 2, 4})
end)

test("transformers and bags: wrong calls", function()
  raises("activation should be relu or gelu, not 'tanh'", nn.TransformerEncoderLayer, 4, 2, {activation = "tanh"})
  raises("unknown option 'mask'", nn.TransformerEncoderLayer(4, 2, 4), lt.ones(2, 1, 4), {mask = lt.ones(2, 2)})
  raises("src has a batch of 2, tgt one of 3", nn.Transformer(4, 2, 1, 1, 4), lt.ones(5, 2, 4), lt.ones(5, 3, 4))
  raises("d_model is 4", nn.Transformer(4, 2, 1, 1, 4), lt.ones(5, 2, 6), lt.ones(5, 2, 4))
  raises("a module is needed, not number 3", nn.TransformerEncoder, 3, 2)
  local encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 2)
  truthy(encoder.layers[1].linear1.weight ~= encoder.layers[2].linear1.weight
    and encoder.layers[1].linear1.weight:equal(encoder.layers[2].linear1.weight))
  local ids, table_ = lt.tensor({1, 2, 0}):long(), lt.ones(3, 2)
  raises("an input of 1 dimension needs offsets", F.embedding_bag, ids, table_)
  raises("takes no offsets", F.embedding_bag, ids:view(1, 3), table_, ids)
  raises("argument 'mode' must be 'sum', 'mean' or 'max'", F.embedding_bag, ids, table_, ids, {mode = "min"})
  raises("per_sample_weights go with mode 'sum'", F.embedding_bag, ids:view(1, 3), table_,
    {per_sample_weights = lt.ones(1, 3)})
  raises("do not go with input of size {1, 3}", F.embedding_bag, ids:view(1, 3), table_,
    {mode = "sum", per_sample_weights = lt.ones(3)})
  raises("sparse = true does not exist yet", nn.EmbeddingBag, 3, 2, {sparse = true})
  local function bag(numbers, offsets, options)
    return F.embedding_bag(lt.tensor(numbers):long(), table_, lt.tensor(offsets):long(), options)
  end
  for _, mode in ipairs {"sum", "mean", "max"} do
    lt.reset() -- each mode is an entry
    local options = {mode = mode}
    local with_last = {mode = mode, include_last_offset = true}
    for _, f in ipairs {bag, lt.compile(bag)} do
      raises("embedding_bag: offsets must not descend", f, {0, 1, 2, 0}, {0, 3, 1}, options)
      raises("embedding_bag: offsets must not descend", f, {0, 1, 2, 0}, {0, 3, 1, 4}, with_last)
      raises("embedding_bag: offsets[0] must be 0", f, {0, 1, 2, 0}, {1, 2}, options)
      raises("embedding_bag: an offset is greater than the number of ids", f, {0, 1}, {0, 3}, options)
      raises("embedding_bag: an offset is greater than the number of ids", f, {0, 1}, {0, 3}, with_last)
      raises("embedding_bag: an id is no row of weight", f, {0, 3}, {0}, options)
      raises("embedding_bag: an id is no row of weight", f, {0, -1}, {0}, options)
      deep(f({0, 1, 2, 0}, {0, 4, 4}, options):select(1, 0):tolist(), {mode == "sum" and 4 or 1, 0, 0})
    end
    raises("embedding_bag: include_last_offset needs an offset", bag, {0, 1}, {}, with_last)
    for _, row in ipairs {3, -4, 0.5, 0 / 0} do
      raises("embedding_bag: argument 'padding_idx' must be from -3 to 2", bag, {0}, {0},
        {mode = mode, padding_idx = row})
    end
    deep(bag({}, {0, 0}, options).shape, {2, 2})
  end
  deep(F.embedding_bag(ids, lt.tensor {{1}, {2}, {4}}, lt.tensor {0, 1, 2}:long(),
    {mode = "sum", include_last_offset = true}):tolist(), {{2}, {4}})
  raises("embedding_bag: argument 'input' must be int64 or int32, got float32", F.embedding_bag, lt.ones(2), table_,
    ids)
  raises("embedding_bag: weight has 2 dimensions, got 1", F.embedding_bag, ids, lt.ones(3), ids)
  raises("SyncBatchNorm: statistics over several processes do not exist yet", nn.SyncBatchNorm, 3)
  raises("argument 'padding_mode' must be 'zeros', 'reflect', 'replicate' or 'circular'", nn.Conv2d, 1, 1, 1,
    {padding_mode = "same"})
  raises("argument 'padding_mode' must be 'zeros', got string 'reflect'", nn.ConvTranspose2d, 1, 1, 1,
    {padding_mode = "reflect"})
end)

test("finfo, iinfo, autograd.grad", function()
  equal(lt.finfo("float32").max, 3.4028234663852886e38)
  equal(lt.finfo("float16").max, 65504)
  equal(lt.finfo().eps, 2 ^ -23)
  equal(lt.finfo("bfloat16").min, -3.3895313892515355e38)
  equal(lt.finfo("float64").tiny, 2.2250738585072014e-308)
  equal(lt.iinfo("int8").min, -128)
  truthy(lt.iinfo("int64").max == 9223372036854775807LL, "int64")
  raises("finfo", lt.finfo, "int32")
  raises("iinfo", lt.iinfo, "float32")
  local mask = lt.tensor {true, false}
  local f = function(x) return x:masked_fill(mask, lt.finfo(x.dtype).min) end
  truthy(lt.compile(f)(lt.ones(2)):equal(f(lt.ones(2))), "compiled")
  local x = lt.tensor({2}):float():requires_grad_()
  equal(lt.autograd.grad((x * x):sum(), x):item(), 4)
end)

test("the largest element of a window of -inf is in that window", function()
  local inf = math.huge
  local x = lt.tensor {{{5, 1, -inf, -inf, -inf}}}
  local values, places = F.adaptive_max_pool1d(x, 2, {return_indices = true})
  equal(values:equal(lt.tensor {{{5, -inf}}}), true)
  h.deep(places:totable(), {{{0, 2}}})
end)

-- {lazy layer, the layer, its count, the arguments of both, an input, options}
local lazy = {
  {"LazyLinear", "Linear", 6, {4}, {3, 6}}, {"LazyLinear", "Linear", 6, {4, {bias = false}}, {2, 3, 6}},
  {"LazyConv1d", "Conv1d", 4, {6, 3, {groups = 2}}, {2, 4, 8}}, {"LazyConv1d", "Conv1d", 4, {6, 3}, {4, 8}},
  {"LazyConv2d", "Conv2d", 3, {5, {3, 2}, 1, 1}, {2, 3, 6, 7}},
  {"LazyConv2d", "Conv2d", 3, {5, 3, {padding = "same", padding_mode = "reflect"}}, {2, 3, 6, 7}},
  {"LazyConvTranspose1d", "ConvTranspose1d", 4, {6, 3, {groups = 2}}, {2, 4, 8}},
  {"LazyConvTranspose2d", "ConvTranspose2d", 3, {5, 3, 2}, {3, 6, 7}},
  {"LazyBatchNorm1d", "BatchNorm1d", 5, {}, {4, 5}}, {"LazyBatchNorm1d", "BatchNorm1d", 5, {1e-3, 0.2}, {4, 5, 3}},
  {"LazyBatchNorm2d", "BatchNorm2d", 5, {{affine = false}}, {4, 5, 3, 3}},
  {"LazyBatchNorm3d", "BatchNorm3d", 5, {{track_running_stats = false}}, {4, 5, 2, 2, 2}},
  {"LazyInstanceNorm1d", "InstanceNorm1d", 5, {{affine = true}}, {4, 5, 3}},
  {"LazyInstanceNorm2d", "InstanceNorm2d", 5, {{affine = true, track_running_stats = true}}, {4, 5, 3, 3}},
}

local function state_of(module)
  local parts = {}
  for name, t in pairs(module:state_dict()) do parts[#parts + 1] = name .. tostring(t) end
  table.sort(parts)
  return table.concat(parts, "\n")
end

test("lazy layers become what they stand for at the first forward", function()
  for _, row in ipairs(lazy) do
    local name, layer, count, arguments, shape = unpack(row)
    local x = lt.randn(shape)
    lt.manual_seed(3)
    local want = nn[layer](count, unpack(arguments))
    local after = lt.rand(1):item()
    for _, how in ipairs {"eager", "compiled"} do
      lt.manual_seed(3)
      local made = nn[name](unpack(arguments))
      truthy(tostring(made):find("^" .. name .. "%("), tostring(made))
      local held = made.weight
      local y = (how == "compiled" and lt.compile(made) or made)(x)
      equal(lt.rand(1):item(), after, name .. ": draws")
      equal(state_of(made):gsub("tracked.*", ""), state_of(want):gsub("tracked.*", ""), name)
      truthy(made.weight == held, name .. ": the parameter")
      equal(tostring(made), tostring(want))
      truthy(lt.isinstance(made, nn[layer]) and not lt.isinstance(made, nn[name]), name)
      truthy(y:equal(nn[layer].forward(made, x)) or made.running_mean, name)
    end
    want(x)
    local loaded = nn[name](unpack(arguments))
    local net = nn.Sequential(loaded, nn.Identity())
    net:load_state_dict(nn.Sequential(want, nn.Identity()):state_dict())
    truthy(net:eval()(x):equal(want:eval()(x)), name .. ": loaded")
  end
end)

test("lazy layers before their first forward", function()
  local net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
  net:to("float64")
  deep(net[1].weight.shape, {0})
  local opt = lt.optim.SGD(net:parameters(), {lr = 0.5})
  local copy = lt.deepcopy(net)
  local x = lt.randn(5, 3, {dtype = "float64"})
  local step = lt.compile(function(input)
    local loss = net(input):square():mean()
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end)
  local first = step(x):item()
  for _ = 1, 5 do step(x) end
  truthy(step(x):item() < first and net[1].weight.dtype == lt.float64)
  deep(net[1].weight.shape, {4, 3})
  deep(copy(x[{":", {0, 2}}]).shape, {5, 2})
  deep(copy[1].weight.shape, {4, 2})
  nn.LazyLinear(4):load_state_dict(nn.LazyLinear(4):state_dict())
  raises("LazyConv2d: does not take an input of 2 dimensions", nn.LazyConv2d(4, 3), x:float())
  raises("LazyConv2d: argument 'kernel_size' is missing", nn.LazyConv2d, 4)
end)

test("each optimiser takes lazy layers", function()
  for _, name in ipairs {"SGD", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD", "Adam", "AdamW", "NAdam", "RAdam",
    "Adamax"} do
    for _, compile in ipairs {function(f) return f end, lt.compile} do
      local x = lt.randn(5, 3)
      local lazy, plain = nn.LazyLinear(2), nn.Linear(3, 2)
      local early = lt.optim[name](lazy:parameters(), {lr = 0.1})
      local late = lt.optim[name](plain:parameters(), {lr = 0.1})
      local function step(net, opt)
        return compile(function(input)
          local loss = net(input):square():mean()
          opt:zero_grad()
          loss:backward()
          opt:step()
          return loss
        end)
      end
      lazy(x)
      lazy:load_state_dict(plain:state_dict())
      local first, second = step(lazy, early), step(plain, late)
      for _ = 1, 3 do truthy(first(x):equal(second(x)), name) end
      local fresh = nn.LazyLinear(2)
      local third = step(fresh, lt.optim[name](fresh:parameters(), {lr = 0.1}))
      for _ = 1, 2 do third(x) end
    end
  end
  -- A state that was loaded before stays.
  local plain, lazy = nn.Linear(3, 2), nn.LazyLinear(2)
  local opt = lt.optim.Adam(plain:parameters())
  plain(lt.randn(5, 3)):sum():backward()
  opt:step()
  local early = lt.optim.Adam(lazy:parameters())
  early:load_state_dict(opt:state_dict())
  lazy(lt.randn(5, 3))
  truthy(early.state[lazy.weight].exp_avg:equal(opt.state[plain.weight].exp_avg))
end)

test("a state that does not fit leaves lazy layers as they were", function()
  local net = nn.Sequential(nn.LazyLinear(4), nn.LazyConv1d(2, 3))
  raises("0.weight has size {4, 3}, the state's {5, 3}", function()
    net:load_state_dict {["0.weight"] = lt.ones(5, 3), ["0.bias"] = lt.ones(4), ["1.weight"] = lt.ones(2, 6, 3),
      ["1.bias"] = lt.ones(2)}
  end)
  raises("0.weight has size {0}, the state's {}", net.load_state_dict, net, {["0.weight"] = lt.tensor(1)})
  for i = 1, 2 do deep(net[i].weight.shape, {0}) end
  deep(net(lt.ones(6, 9)).shape, {2, 2})
end)

-- Weights are small integers, so that sums are exact in any order.
test("bags of one length are the bags of their offsets", function()
  lt.manual_seed(4)
  for _, s in ipairs {{5, 3}, {1, 8}, {4, 1}, {3, 0}, {0, 2}} do
    local count, length = unpack(s)
    local ids, offsets = lt.randint(0, 6, {count, length}), lt.arange(count) * length
    local weight, some = lt.randint(-8, 8, {6, 3}):float(), lt.randint(1, 4, {count, length}):float()
    local function run(mode, padding, weights, flat)
      local w = weight:clone():requires_grad_()
      local x, per_sample = ids, weights
      if flat then x, per_sample = ids:flatten(), weights and weights:flatten() end
      local out = F.embedding_bag(x, w, flat and offsets or nil,
        {mode = mode, padding_idx = padding, per_sample_weights = per_sample})
      out:mul(2):sum():backward()
      return out:detach(), w.grad
    end
    for _, mode in ipairs {"sum", "mean", "max"} do
      for padding = -1, 2 do
        local row = padding >= 0 and padding or nil
        local out, grad = run(mode, row, nil, false)
        local wanted, wanted_grad = run(mode, row, nil, true)
        local what = mode .. " of " .. count .. " x " .. length
        truthy(out:equal(wanted), what)
        truthy(grad:allclose(wanted_grad), what .. ", gradient")
      end
    end
    truthy(run("sum", nil, some, false):equal((run("sum", nil, some, true))), "weighted")
  end
  local w = lt.tensor({{1, 0}, {1, 2}, {0, 2}}, {dtype = "float32"}):requires_grad_()
  F.embedding_bag(lt.tensor({{0, 1, 2}, {2, 2, 1}}, {dtype = "int64"}), w, {mode = "max"}):sum():backward()
  deep(w.grad:totable(), {{1, 0}, {1, 1}, {0, 1}}) -- the first of equal rows
end)

test("embedding_bag rounds halves once, after the sum", function()
  local ids = lt.cat({lt.zeros({500}, {dtype = "int64"}), lt.ones({500}, {dtype = "int64"})})
  local offsets = lt.zeros({1}, {dtype = "int64"})
  for _, dtype in ipairs {"bfloat16", "float16"} do
    local w = lt.tensor({{1}, {3}}, {dtype = dtype})
    for mode, wanted in pairs {sum = 2000, mean = 2} do
      equal(F.embedding_bag(ids, w, offsets, {mode = mode}):item(), wanted)
      equal(F.embedding_bag(ids:view(1, -1), w, nil, {mode = mode}):item(), wanted)
    end
    local e = dtype == "float16" and 2 ^ -10 or 2 ^ -7
    local near, weights = lt.tensor({{1 + e}, {1 + 2 * e}}, {dtype = dtype}), lt.tensor({{1 + e, -1}}, {dtype = dtype})
    local pair = lt.arange(2):view(1, 2)
    equal(F.embedding_bag(pair, near, nil, {mode = "sum", per_sample_weights = weights}):item(), e * e)
  end
end)

test("embedding_bag: the last offset is none of rows; padding takes no gradient from a row of -inf", function()
  local w, rows = lt.arange(8):float():view(4, 2), lt.tensor({{0, 1}, {2, 3}}, {dtype = "int64"})
  deep(F.embedding_bag(rows, w, nil, {mode = "sum", include_last_offset = true}):totable(), {{2, 4}, {10, 12}})
  for _, flat in ipairs {true, false} do
    local low = lt.full({2, 1}, -math.huge):requires_grad_()
    local ids = lt.tensor({{0, 1}}, {dtype = "int64"})
    local offsets = flat and lt.zeros({1}, {dtype = "int64"}) or nil
    F.embedding_bag(flat and ids:flatten() or ids, low, offsets, {mode = "max", padding_idx = 0}):sum():backward()
    deep(low.grad:totable(), {{0}, {1}})
  end
end)

test("embedding_bag without a bag, without an id, with an empty bag, with NaN", function()
  local w, none = lt.tensor({{1, 0 / 0}, {2, 3}}), lt.zeros({0}, {dtype = "int64"})
  for _, mode in ipairs {"sum", "mean", "max"} do
    local function bag(ids, offsets) return F.embedding_bag(ids, w, offsets, {mode = mode}) end
    deep(bag(lt.tensor({0, 1}, {dtype = "int64"}), none).shape, {0, 2})
    deep(bag(none, lt.tensor({0, 0}, {dtype = "int64"})):totable(), {{0, 0}, {0, 0}})
    local out = bag(lt.tensor({1, 0, 1}, {dtype = "int64"}), lt.tensor({0, 0, 2}, {dtype = "int64"}))
    deep({out[0]:totable(), out[2]:totable(), out[{1, 1}]:isnan():item()}, {{0, 0}, {2, 3}, true})
  end
end)

test("embedding_bag gives each feature the bits that it has alone", function()
  for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
    local w, scales = lt.randn({7, 150}, {dtype = dtype}), lt.randn({120}, {dtype = dtype})
    local ids, offsets = lt.randint(0, 7, {120}), lt.tensor({0, 3, 3, 80}, {dtype = "int64"})
    w[2][5], w[3][61], w[4][149] = 0 / 0, math.huge, 0 / 0
    for _, mode in ipairs {"sum", "mean", "max"} do
      local function bag(from) -- NaN as a number, so that bits compare
        return F.embedding_bag(ids, from, offsets, {mode = mode, per_sample_weights = mode == "sum" and scales or nil})
          :nan_to_num(12345)
      end
      local alone = {}
      for k = 1, 150 do alone[k] = bag(w:narrow(1, k - 1, 1)) end
      alone = lt.cat(alone, 1)
      for features = 1, 150 do
        local name = ("%s %s %d"):format(dtype, mode, features)
        truthy(bag(w:narrow(1, 0, features)):equal(alone:narrow(1, 0, features)), name)
        truthy(bag(w:narrow(1, 150 - features, features)):equal(alone:narrow(1, 150 - features, features)), name)
      end
    end
  end
end)

-- The formula of embedding_bag, in ops that copy all rows. Returns the bags in which `ids` are, by offsets.
local function bags_by_formula(ids, w, offsets, mode, weights, padding)
  local out = {}
  for b = 0, offsets:size(0) - 1 do
    local first = offsets[b]:item()
    local last = b + 1 < offsets:size(0) and offsets[b + 1]:item() or ids:size(0)
    local places = {}
    for i = first, last - 1 do
      if ids[i]:item() ~= padding then places[#places + 1] = i end
    end
    local at = lt.tensor(places, {dtype = "int64"})
    local rows = w:index_select(0, ids:index_select(0, at))
    if weights then rows = rows * weights:index_select(0, at):unsqueeze(1) end
    if #places == 0 then out[b + 1] = w:sum(0) * 0
    elseif mode == "max" then out[b + 1] = (rows:max(0))
    else out[b + 1] = mode == "sum" and rows:sum(0) or rows:mean(0) end
  end
  return lt.stack(out, 0)
end

test("embedding_bag is its formula: values, first and second gradients, compiled", function()
  lt.manual_seed(9)
  local double = {dtype = "float64"}
  local offsets = lt.tensor({0, 3, 3, 50, 51}, {dtype = "int64"})
  for _, features in ipairs {1, 3, 8, 61, 101} do
    for _, c in ipairs {{"sum"}, {"mean"}, {"max"}, {"sum", true}, {"sum", true, 2}, {"mean", false, 2},
      {"max", false, 2}} do
      lt.reset() -- each mode is an entry
      local mode, weighted, padding = c[1], c[2], c[3]
      local ids = lt.randint(0, 7, {90}):to(features == 3 and "int32" or "int64")
      local w = lt.randn(7, features, double):requires_grad_()
      local weights = weighted and lt.randn(90, double):requires_grad_() or nil
      local factor = lt.randn(5, features, double)
      local leaves = {w, weights}
      local function run(bag)
        local out = bag(ids, w, weights)
        local first = {lt.autograd.grad((out * factor):square():sum(), leaves, {create_graph = true})}
        local total = first[1]:square():sum()
        if weighted then total = total + first[2]:square():sum() end
        return {out, first[1], first[2] or w, lt.autograd.grad(total, leaves)}
      end
      local function op(i, x, s)
        return F.embedding_bag(i, x, offsets, {mode = mode, per_sample_weights = s, padding_idx = padding})
      end
      local wanted = run(function(i, x, s) return bags_by_formula(i, x, offsets, mode, s, padding) end)
      local got = run(op)
      for k, value in ipairs(wanted) do
        truthy(got[k]:allclose(value), ("%s %d: result %d"):format(mode, features, k))
      end
      truthy(lt.compile(op)(ids, w, weights):equal(got[1]), mode .. " compiled")
    end
  end
end)

test("bags that are rows of ids have their gradients; long bags are summed with compensation", function()
  local w = lt.randn(5, 40, {dtype = "float64"}):requires_grad_()
  local ids = lt.randint(0, 5, {6, 35})
  for _, mode in ipairs {"sum", "mean", "max"} do
    local function run(bag) return {bag, (lt.autograd.grad(bag:square():sum(), w))} end
    local got = run(F.embedding_bag(ids, w, nil, {mode = mode}))
    local wanted = run(bags_by_formula(ids:flatten(), w, lt.arange(6) * 35, mode))
    for k = 1, 2 do truthy(got[k]:allclose(wanted[k]), mode .. " " .. k) end
  end
  local tenth = lt.full({1, 1}, 0.1)
  local sum = F.embedding_bag(lt.zeros({1, 1000000}, {dtype = "int64"}), tenth, nil, {mode = "sum"}):item()
  truthy(math.abs(sum / 1000000 - tenth:item()) < 1e-7, tostring(sum))
end)

h.finish()
