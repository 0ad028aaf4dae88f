-- A Llama: RMS norms, rotary positions, grouped key and value heads, a gated feed-forward net. Generates tokens with a
-- static cache of keys and values; each step is one compiled graph. --train, --bench and --profile train it as the
-- other ports are trained. Weights are random. --d 4096 --heads 32 --kv-heads 32 --layers 32 --ffn 11008 --vocabulary
-- 32000 has the shape of Llama-7B.
--   lutra scripts/models/llama.lua [--d 512] [--heads 8] [--kv-heads 2] [--layers 8] [--ffn 1408] [--vocabulary 32000]
--     [--batch 1] [--prompt 16] [--tokens 64] [--length 256] [--temperature 0.8] [--top-k 50] [--bf16] [--bits 16|8|4]
--     [--group 128] [--accuracy] [--seed 0] [--eager] [--json FILE] [--train | --bench | --profile] [--steps 20]
--     [--lr 1e-3] [--seconds 1] [--threads N] [--device cpu|cuda]
-- --length is the number of positions of the cache, or of a sequence in training. --temperature 0 takes the likeliest
-- token. --bits 8 generates with int8 weights, --bits 4 with int4 weights in groups of --group. --accuracy prints how
-- far the logits of each format are from float32's.
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

-- Returns cosines and sines of each position's angles, (positions, head / 2).
local function rotary(positions, head)
  local rates = 10000 ^ (lt.arange(0, head, 2, {dtype = "float32"}) / -head)
  local angles = lt.arange(positions, {dtype = "float32"}):outer(rates)
  return angles:cos(), angles:sin()
end

-- Rotates x, (batch, heads, length, head): element i of its first half forms a pair with element i of its second half.
local function turn(x, cos, sin)
  local a, b = unpack(x:chunk(2, -1))
  return lt.cat({a * cos - b * sin, b * cos + a * sin}, -1)
end

-- Joins linear layers of the same input to one.
local function joined(...)
  local weights = {}
  for i, layer in ipairs {...} do weights[i] = layer.weight end
  local weight = lt.cat(weights)
  local linear = nn.Linear(1, 1, {bias = false, dtype = weight.dtype})
  linear.weight = nn.Parameter(weight:detach())
  return linear
end

local Attention = nn.Module:extend("Attention")
function Attention:init(s)
  local head = s.d / s.heads
  self.heads, self.kv_heads, self.head = s.heads, s["kv-heads"], head
  self.wq, self.wo = nn.Linear(s.d, s.d, {bias = false}), nn.Linear(s.d, s.d, {bias = false})
  self.wk = nn.Linear(s.d, self.kv_heads * head, {bias = false})
  self.wv = nn.Linear(s.d, self.kv_heads * head, {bias = false})
end

-- Joins the products for queries, keys and values, for nets that only generate.
function Attention:join()
  self.wqkv, self.wq, self.wk, self.wv = joined(self.wq, self.wk, self.wv), nil, nil, nil
end

-- cache: {keys, values}, each (batch, kv heads, positions, head). The new ones are written at position `at`.
function Attention:forward(x, cos, sin, cache, at, mask)
  local q, k, v
  if self.wqkv then
    local keys = self.kv_heads * self.head
    q, k, v = unpack(self.wqkv(x):split({self.heads * self.head, keys, keys}, -1))
  else
    q, k, v = self.wq(x), self.wk(x), self.wv(x)
  end
  q = turn(q:unflatten(-1, {self.heads, -1}):transpose(1, 2), cos, sin)
  k = turn(k:unflatten(-1, {self.kv_heads, -1}):transpose(1, 2), cos, sin)
  v = v:unflatten(-1, {self.kv_heads, -1}):transpose(1, 2)
  if cache then
    k, v = cache.keys:index_copy_(2, at, k), cache.values:index_copy_(2, at, v)
  end
  local mixed = F.scaled_dot_product_attention(q, k, v, mask, {is_causal = not cache, enable_gqa = true})
  return self.wo(mixed:transpose(1, 2):flatten(2))
end

local Block = nn.Module:extend("Block")
function Block:init(s)
  self.attention_norm, self.ffn_norm = nn.RMSNorm(s.d, {eps = 1e-5}), nn.RMSNorm(s.d, {eps = 1e-5})
  self.attention = Attention(s)
  self.w1, self.w3 = nn.Linear(s.d, s.ffn, {bias = false}), nn.Linear(s.d, s.ffn, {bias = false})
  self.w2 = nn.Linear(s.ffn, s.d, {bias = false})
end
function Block:join()
  self.attention:join()
  self.w13, self.w1, self.w3 = joined(self.w1, self.w3), nil, nil
end
function Block:forward(x, cos, sin, cache, at, mask)
  x = x + self.attention(self.attention_norm(x), cos, sin, cache, at, mask)
  local y = self.ffn_norm(x)
  local gate, value
  if self.w13 then gate, value = unpack(self.w13(y):chunk(2, -1)) else gate, value = self.w1(y), self.w3(y) end
  return x + self.w2(F.silu(gate) * value)
end

local Llama = nn.Module:extend("Llama")
function Llama:init(s)
  self.words = nn.Embedding(s.vocabulary, s.d)
  self.layers = nn.ModuleList()
  for _ = 1, s.layers do self.layers:append(Block(s)) end
  self.norm, self.head = nn.RMSNorm(s.d, {eps = 1e-5}), nn.Linear(s.d, s.vocabulary, {bias = false})
  self.cos, self.sin = rotary(s.length, s.d / s.heads)
  self.head_size = s.d / s.heads
end

-- Returns an empty cache for `length` positions.
function Llama:cache(batch, length)
  local caches, like = {}, self.words.weight
  for i, layer in ipairs(self.layers) do
    local sizes = {batch, layer.attention.kv_heads, length, self.head_size}
    caches[i] = {keys = like:new_zeros(sizes), values = like:new_zeros(sizes)}
  end
  return caches
end

-- Prepares the net for generation: joins products, and quantises weights if bits is 8 or 4.
function Llama:prepare(bits, group)
  lt.no_grad(function()
    for _, layer in ipairs(self.layers) do layer:join() end
    if bits < 16 then nn.utils.quantize_(self, {bits = bits, group_size = group}) end
  end)
  return self:eval()
end

-- Returns the logits of ids, (batch, length). With caches, `at` has the positions of ids. It is a tensor, so that a
-- step is compiled once.
function Llama:forward(ids, caches, at)
  local x, cos, sin, mask = self.words(ids)
  if caches then
    cos, sin = self.cos:index_select(0, at), self.sin:index_select(0, at)
    mask = lt.arange(caches[1].keys:size(2), {device = ids.device}):le(at:unsqueeze(1))
  else
    cos, sin = self.cos:narrow(0, 0, ids:size(1)), self.sin:narrow(0, 0, ids:size(1))
  end
  cos, sin = cos:to(x.dtype), sin:to(x.dtype)
  for i, layer in ipairs(self.layers) do x = layer(x, cos, sin, caches and caches[i], at, mask) end
  return self.head(self.norm(x))
end

-- Generation ----------------------------------------------------------------------------------------------------------

-- Returns the next token of each row of logits, (batch, vocabulary).
local function choose(logits, temperature, top_k)
  if temperature == 0 then return logits:argmax(-1, true) end
  local values, indices = logits:float():topk(top_k)
  return indices:gather(1, (values / temperature):softmax(-1):multinomial(1))
end

-- Returns ids with `count` more tokens, the seconds of the prompt, and the seconds of a token. step(ids, caches, at)
-- returns the next token. The host waits for the first and the last token only, so that a GPU runs ahead.
local function generate(net, step, ids, count, length)
  local caches, out = net:cache(ids:size(0), length), {ids}
  local at, on_gpu = lt.arange(ids:size(1), {device = ids.device}), tostring(ids.device):match("^cuda")
  local start, prompt, each = lt.perf_counter()
  for i = 1, count do
    ids = step(ids, caches, at)
    if on_gpu and (i == 1 or i == count) then lt.cuda.synchronize() end
    if i == 1 then prompt = lt.perf_counter() - start end
    out[#out + 1], at = ids, at:narrow(0, at:size(0) - 1, 1) + 1
  end
  each = (lt.perf_counter() - start - prompt) / math.max(count - 1, 1)
  return lt.cat(out, 1), prompt, each
end

local function stepper(net, temperature, top_k, compile)
  local function step(ids, caches, at)
    return choose(net(ids, caches, at):select(1, -1), temperature, top_k)
  end
  return compile and lt.compile(step) or step
end

-- Prints how far the logits of each format are from float32's, relative to their root mean square, with equal weights.
local function accuracy(options)
  local ids = lt.randint(0, options.vocabulary, {options.batch, options.prompt})
  local net = Llama(options):eval()
  local state, want = net:state_dict(), lt.no_grad(net, ids):double()
  local size = want:pow(2):mean():sqrt()
  print("format              rms error  largest  same token")
  for _, each in ipairs {{"bfloat16", 16, "bfloat16"}, {"int8", 8}, {"int8, bfloat16", 8, "bfloat16"}, {"int4", 4},
    {"int4, bfloat16", 4, "bfloat16"}} do
    local name, bits, dtype = unpack(each)
    net = Llama(options)
    net:load_state_dict(state)
    if dtype then net:to(dtype) end
    net:prepare(bits, options.group)
    local got = lt.no_grad(net, ids):double()
    local far = (got - want) / size
    print(string.format("%-18s %10.5f %8.4f %11.3f", name, far:pow(2):mean():sqrt():item(), far:abs():max():item(),
      got:argmax(-1):eq(want:argmax(-1)):double():mean():item()))
  end
end

local function write(_, options)
  if options.accuracy then return accuracy(options) end
  local net = Llama(options)
  if options.bf16 then net:to("bfloat16") end
  net:prepare(options.bits, options.group)
  local step = stepper(net, options.temperature, options["top-k"], not options.eager)
  local ids = lt.randint(0, options.vocabulary, {options.batch, options.prompt})
  local bytes = 0 -- that a token reads: of the embedding one row
  for name, t in pairs(net:state_dict()) do
    if name ~= "words.weight" then bytes = bytes + t:numel() * t:element_size() end
  end
  local function run() return generate(net, step, ids, options.tokens, options.length) end
  lt.no_grad(run) -- compiles
  local tokens, prompt, each = lt.no_grad(run)
  local prompt_ms, ms = prompt * 1e3, each * 1e3
  print(table.concat(tokens[0]:totable(), " "))
  print(string.format([[

  prompt of %4d        %8.2f ms
  a token               %8.2f ms  %.1f tokens/s
  weights               %8.1f MB  %.1f GB/s]], options.prompt, prompt_ms, ms, options.batch / ms * 1e3, bytes / 1e6,
    bytes / ms / 1e6))
  if options.json then
    local file = assert(io.open(options.json, "w"))
    file:write(lt._native.json({prompt_ms = prompt_ms, token_ms = ms, weight_mb = bytes / 1e6,
      tokens_per_second = options.batch / ms * 1e3}), "\n")
    file:close()
  end
end

local model = {
  name = "llama",
  sizes = {d = 512, heads = 8, ["kv-heads"] = 2, layers = 8, ffn = 1408, vocabulary = 32000, batch = 1, prompt = 16,
    tokens = 64, length = 256, temperature = 0.8, ["top-k"] = 50, bits = 16, group = 128},
  tiny = {d = 16, heads = 4, ["kv-heads"] = 2, layers = 2, ffn = 40, vocabulary = 50, batch = 2, length = 8,
    bits = 16, group = 32},
  kinds = {json = tostring},
  flags = {bf16 = true, train = true, accuracy = true},
  check = function(options, refuse)
    if options.d % (2 * options.heads) ~= 0 then refuse("--d must be a multiple of twice --heads") end
    if options.heads % options["kv-heads"] ~= 0 then refuse("--heads must be a multiple of --kv-heads") end
    if options.bits ~= 16 and options.bits ~= 8 and options.bits ~= 4 then refuse("--bits must be 16, 8 or 4") end
    local trains = options.train or options.bench or options.profile
    if not trains and options.prompt + options.tokens > options.length then
      refuse("--prompt and --tokens are together at most --length")
    end
  end,
  make = function(sizes) return Llama(sizes) end,
  batch = zoo.sequences,
  loss = function(net, x, y) return F.cross_entropy(net(x):flatten(0, 1), y:flatten()) end,
  main = function(options)
    if not (options.train or options.bench or options.profile) then return write end
  end,
  generate = generate,
  stepper = stepper,
}
return zoo.model(model)
