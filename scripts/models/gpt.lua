-- Returns the class of the GPT that char_gpt.lua, gpt2.lua, the benchmarks and the tests use: pre-norm blocks, learned
-- positions.
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional

local Block = nn.Module:extend("Block")

function Block:init(d, heads)
  self.heads = heads
  self.l1 = nn.LayerNorm(d)
  self.l2 = nn.LayerNorm(d)
  self.qkv = nn.Linear(d, 3 * d)
  self.o = nn.Linear(d, d)
  self.f1 = nn.Linear(d, 4 * d)
  self.f2 = nn.Linear(4 * d, d)
end

function Block:forward(x)
  local batch, length, d = x:size()
  local qkv = self.qkv(self.l1(x)):view(batch, length, 3, self.heads, d / self.heads):permute(2, 0, 3, 1, 4)
  local a = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {is_causal = true})
  x = x + self.o(a:transpose(1, 2):reshape(batch, length, d))
  return x + self.f2(F.gelu(self.f1(self.l2(x)), {approximate = "tanh"}))
end

local GPT = nn.Module:extend("GPT")

-- sizes: d, heads, layers, vocabulary, length (the longest sequence). tied = true: the head shares the embedding's
-- weight and has no bias. init = "gpt2": GPT-2's initial weights.
function GPT:init(sizes)
  self.e = nn.Embedding(sizes.vocabulary, sizes.d)
  self.p = nn.Embedding(sizes.length, sizes.d)
  self.b = nn.ModuleList()
  for _ = 1, sizes.layers do self.b:append(Block(sizes.d, sizes.heads)) end
  self.n = nn.LayerNorm(sizes.d)
  self.hd = nn.Linear(sizes.d, sizes.vocabulary, {bias = not sizes.tied})
  if sizes.tied then self.hd.weight = self.e.weight end
  if sizes.init == "gpt2" then self:init_gpt2(sizes.layers) end
end

-- Weights have the standard deviation 0.02, biases are 0. The last weight of each residual branch is divided by the
-- root of the number of branches.
function GPT:init_gpt2(layers)
  for name, p in self:named_parameters() do
    local ends_branch = name:match("%.o%.weight$") or name:match("%.f2%.weight$")
    if p:dim() > 1 then
      nn.init.normal_(p, 0, ends_branch and 0.02 / math.sqrt(2 * layers) or 0.02)
    elseif name:match("bias$") then
      nn.init.zeros_(p)
    end
  end
end

-- ids: (batch, length). Returns logits, (batch, length, vocabulary).
function GPT:forward(ids)
  local x = self.e(ids) + self.p(lt.arange(ids:size(1), {device = ids.device}))
  for i = 1, #self.b do x = self.b[i](x) end
  return self.hd(self.n(x))
end

return GPT
