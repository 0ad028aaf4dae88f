-- Tests transformers: names and shapes of layers, attention against its formula, and a small GPT's train step bit for
-- bit on one and two threads.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn, optim = lt.nn, lt.optim
local F = nn.functional
local GPT = dofile "../../scripts/models/gpt.lua"

local function keys(module)
  local names = {}
  for name, value in pairs(module:state_dict()) do names[#names + 1] = name .. " " .. table.concat(value.shape, "x") end
  table.sort(names)
  return table.concat(names, ", ")
end

local function close(a, b, tolerance, what)
  local off = (a - b):abs():amax():item()
  truthy(off <= tolerance, string.format("%s off by %g", what or "value", off))
end

test("parameters have PyTorch's names, shapes and initial values", function()
  equal(keys(nn.LayerNorm(4)), "bias 4, weight 4")
  equal(keys(nn.LayerNorm({2, 3}, {bias = false})), "weight 2x3")
  equal(keys(nn.LayerNorm(4, {elementwise_affine = false})), "")
  equal(keys(nn.RMSNorm(4)), "weight 4")
  equal(keys(nn.Embedding(5, 3)), "weight 5x3")
  equal(keys(nn.MultiheadAttention(8, 2)), "in_proj_bias 24, in_proj_weight 24x8, out_proj.bias 8, out_proj.weight 8x8")
  equal(keys(nn.MultiheadAttention(8, 2, {kdim = 3, vdim = 5, bias = false})),
    "k_proj_weight 8x3, out_proj.weight 8x8, q_proj_weight 8x8, v_proj_weight 8x5")
  equal(keys(nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16})),
    "linear1.bias 16, linear1.weight 16x8, linear2.bias 8, linear2.weight 8x16, norm1.bias 8, norm1.weight 8, norm2.bias 8, "
    .. "norm2.weight 8, self_attn.in_proj_bias 24, self_attn.in_proj_weight 24x8, self_attn.out_proj.bias 8, self_attn.out_proj.weight 8x8")
  truthy(nn.LayerNorm(3).weight:equal(lt.ones(3)) and nn.LayerNorm(3).bias:equal(lt.zeros(3)), "LayerNorm")
  truthy(nn.Embedding(4, 3, {padding_idx = 2}).weight[2]:equal(lt.zeros(3)), "padding row")
  truthy(nn.MultiheadAttention(4, 2).in_proj_bias:equal(lt.zeros(12)), "in_proj_bias")
  raises("divisible", nn.MultiheadAttention, 7, 2)
  raises("padding_idx", nn.Embedding, 4, 3, {padding_idx = 4})
  raises("unknown option 'epsilon'", nn.LayerNorm, 4, {epsilon = 1})
end)

test("MultiheadAttention: with and without weights, masks, batch first", function()
  lt.manual_seed(3)
  local m = nn.MultiheadAttention(8, 2, {batch_first = true})
  local x = lt.randn(3, 5, 8)
  local out, weights = m(x, x, x)
  local again, none = m(x, x, x, {need_weights = false})
  close(out, again, 1e-6)
  equal(none, nil)
  equal(table.concat(weights.shape, ","), "3,5,5")
  close(weights:sum(-1), lt.ones(3, 5), 1e-6, "rows of weights")
  local hidden = lt.ones(5, 5):triu(1):to("bool")
  local a = m(x, x, x, {attn_mask = hidden})
  close(a, (m(x, x, x, {attn_mask = hidden, is_causal = true, need_weights = false})), 1e-6, "causal")
  close(a["0:3, 0"], m(x["0:3, 0:1"], x["0:3, 0:1"], x["0:3, 0:1"])["0:3, 0"], 1e-6, "the first position sees itself")
  local padding = lt.tensor({{false, false, false, true, true}, {false, false, false, true, true},
    {false, false, false, true, true}})
  close((m(x, x, x, {key_padding_mask = padding})), (m(x, x:narrow(1, 0, 3), x:narrow(1, 0, 3))), 1e-6, "padding")
  close((m(x, x, x, {key_padding_mask = padding, need_weights = false})), (m(x, x:narrow(1, 0, 3), x:narrow(1, 0, 3))),
    1e-6, "padding")
  local second = nn.MultiheadAttention(8, 2)
  second:load_state_dict(m:state_dict())
  local y = x:transpose(0, 1)
  close((second(y, y, y)):transpose(0, 1), out, 1e-6, "batch second")
  close((m(x[0], x[0], x[0])), out[0], 1e-6, "no batch")
end)

test("TransformerEncoderLayer trains", function()
  lt.manual_seed(4)
  for _, norm_first in ipairs {false, true} do
    local layer = nn.TransformerEncoderLayer(8, 2,
      {dim_feedforward = 16, dropout = 0, batch_first = true, norm_first = norm_first})
    local x = lt.randn(2, 5, 8)
    layer(x):square():sum():backward()
    for name, p in layer:named_parameters() do
      truthy(p.grad ~= nil and p.grad:abs():sum():item() < math.huge, name)
    end
  end
end)

-- A table of options that mixes constants and values has an order of keys that capture does not know.
test("a train step with masks and flags in one table is one graph", function()
  lt.manual_seed(4)
  local attention, layer = nn.MultiheadAttention(8, 2),
    nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, dropout = 0})
  local mask = lt.ones(5, 5):triu(1):bool()
  local step = lt.compile(function(x)
    local y = attention(x, x, x, {attn_mask = mask, need_weights = false})
    local loss = layer(y, {src_mask = mask, is_causal = true}):square():sum()
    loss:backward()
    return loss
  end)
  lt.reset()
  step(lt.randn(5, 2, 8))
  equal(next(lt.counters().graph_break), nil, "graph breaks")
  equal(lt.counters().stats.unique_graphs, 1)
end)

-- The kernel against the formula in float64, at sizes beyond its blocks.
test("attention: values and gradients are the formula's", function()
  lt.manual_seed(5)
  for _, s in ipairs {{1, 2, 2, 33, 33, 32, true}, {2, 2, 2, 65, 130, 40, false}, {1, 4, 2, 70, 300, 17, true},
    {20, 1, 1, 9, 12, 64, false}} do
    local b, heads, shared, l, k, d, causal = unpack(s)
    local inputs = {lt.randn(b, heads, l, d), lt.randn(b, shared, k, d), lt.randn(b, shared, k, d)}
    local g = lt.randn(b, heads, l, d)
    local function run(dtype)
      local q, key, v = inputs[1]:to(dtype):detach():requires_grad_(), inputs[2]:to(dtype):detach():requires_grad_(),
        inputs[3]:to(dtype):detach():requires_grad_()
      local out = F.scaled_dot_product_attention(q, key, v, {is_causal = causal, enable_gqa = shared < heads})
      out:backward(g:to(dtype))
      return {out:detach(), q.grad, key.grad, v.grad}
    end
    local narrow, wide = run("float32"), run("float64")
    for i = 1, 4 do close(narrow[i]:to("float64"), wide[i], 2e-5, "attention " .. l .. " result " .. i) end
  end
end)

-- A mask that is the same for all queries gives the bits of the mask that repeats it for each query.
test("attention: a mask of keys is the mask that repeats it", function()
  lt.manual_seed(6)
  for _, s in ipairs {{2, 3, 33, 130, 20}, {1, 1, 7, 5, 8}, {3, 2, 64, 64, 32}} do
    local b, heads, l, k, d = unpack(s)
    local inputs = {lt.randn(b, heads, l, d), lt.randn(b, heads, k, d), lt.randn(b, heads, k, d)}
    local seen = lt.rand(b, 1, 1, k):gt(0.3)
    seen[{0, 0, 0}] = false -- one batch sees nothing
    for what, mask in pairs {bool = seen, float = lt.randn(b, 1, 1, k), both = lt.where(seen, 1.5, -math.huge)} do
      local function run(m)
        local q, key, v = inputs[1]:detach():requires_grad_(), inputs[2]:detach():requires_grad_(),
          inputs[3]:detach():requires_grad_()
        local out = F.scaled_dot_product_attention(q, key, v, m)
        out:backward(lt.ones(b, heads, l, d))
        return {out:detach(), q.grad, key.grad, v.grad}
      end
      local short, long = run(mask), run(mask:expand(b, heads, l, k):contiguous())
      for i = 1, 4 do truthy(short[i]:equal(long[i]), what .. " mask, " .. l .. " queries, result " .. i) end
    end
  end
end)

test("attention: gradients have the same bits at any number of threads", function()
  lt.manual_seed(8)
  local before = lt.config.num_threads
  for _, s in ipairs {{1, 3, 1, 70, 300, 40, true}, {2, 4, 2, 130, 130, 64, false}, {1, 1, 1, 257, 257, 32, true}} do
    local b, heads, shared, l, k, d, causal = unpack(s)
    local inputs = {lt.randn(b, heads, l, d), lt.randn(b, shared, k, d), lt.randn(b, shared, k, d)}
    local g = lt.randn(b, heads, l, d)
    local wanted
    for _, threads in ipairs {1, 2, 3, 16} do
      lt.config.num_threads = threads
      local q, key, v = inputs[1]:detach():requires_grad_(), inputs[2]:detach():requires_grad_(),
        inputs[3]:detach():requires_grad_()
      F.scaled_dot_product_attention(q, key, v, {is_causal = causal, enable_gqa = shared < heads}):backward(g)
      local got = {q.grad, key.grad, v.grad}
      wanted = wanted or got
      for i = 1, 3 do truthy(got[i]:equal(wanted[i]), threads .. " threads, " .. l .. " queries, gradient " .. i) end
    end
  end
  lt.config.num_threads = before
end)

local function setup()
  lt.manual_seed(7)
  local net = GPT {d = 32, heads = 2, layers = 2, vocabulary = 20, length = 40}
  local opt = optim.AdamW(net:parameters(), {lr = 1e-2})
  return {net = net, step = function(x, y)
    local loss = F.cross_entropy(net(x):flatten(0, 1), y:reshape(-1))
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end}
end

for _, threads in ipairs {1, 2} do
  test("20 steps of a GPT are bit for bit eager's, threads " .. threads, function()
    lt.reset()
    local before = lt.config.num_threads
    lt.config.num_threads = threads
    local eager, compiled = setup(), setup()
    local step = lt.compile(compiled.step)
    for i = 1, 20 do
      lt.manual_seed(i)
      local x, y = lt.randint(0, 20, {4, 40}), lt.randint(0, 20, {4, 40})
      local a, b = eager.step(x, y), step(x, y)
      truthy(a:equal(b), "loss of step " .. i)
      local other = compiled.net:state_dict()
      for name, value in pairs(eager.net:state_dict()) do
        truthy(value:equal(other[name]), name .. " after step " .. i)
      end
    end
    equal(next(lt.counters().graph_break), nil, "graph breaks")
    truthy(lt.counters().stats.unique_graphs <= 2, "entries: " .. lt.counters().stats.unique_graphs)
    lt.config.num_threads = before
  end)
end

test("a GPT's step gives the same bits on one and two threads", function()
  local losses = {}
  local before = lt.config.num_threads
  for _, threads in ipairs {1, 2} do
    lt.reset()
    lt.config.num_threads = threads
    lt.manual_seed(7)
    local net = GPT {d = 64, heads = 4, layers = 1, vocabulary = 20, length = 64}
    local ids = lt.randint(0, 20, {8, 64})
    local step = lt.compile(function(x) return net(x):square():sum() end)
    step(ids):backward()
    local bits = {step(ids):item()}
    for _, p in ipairs(net:parameters()) do
      bits[#bits + 1] = string.format("%.17g", p.grad:to("float64"):square():sum():item())
    end
    losses[threads] = table.concat(bits, " ")
  end
  lt.config.num_threads = before
  equal(losses[1], losses[2])
end)

h.finish()
