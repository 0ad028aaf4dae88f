-- A BERT encoder on random tokens: post-norm blocks, padding masked, a class from the pooled first token. By
-- default it has MiniLM's width; --d 768 --heads 12 --layers 12 is BERT-base.
--   lutra scripts/models/bert.lua [--d 384] [--heads 12] [--layers 6] [--ffn 1536] [--vocabulary 30522] [--classes 2]
--     [--batch 8] [--length 64] [--dropout 0.1] [--steps 20] [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile]
--     [--seconds 1] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local Layer = nn.Module:extend("Layer")
function Layer:init(s)
  self.heads, self.dropout = s.heads, nn.Dropout(s.dropout)
  self.query, self.key, self.value = nn.Linear(s.d, s.d), nn.Linear(s.d, s.d), nn.Linear(s.d, s.d)
  self.out, self.norm1 = nn.Linear(s.d, s.d), nn.LayerNorm(s.d, {eps = 1e-12})
  self.up, self.down = nn.Linear(s.d, s.ffn), nn.Linear(s.ffn, s.d)
  self.norm2 = nn.LayerNorm(s.d, {eps = 1e-12})
end
function Layer:split(x) return x:unflatten(-1, {self.heads, -1}):transpose(1, 2) end
function Layer:forward(x, mask)
  local q, k, v = self:split(self.query(x)), self:split(self.key(x)), self:split(self.value(x))
  local mixed = F.scaled_dot_product_attention(q, k, v, mask):transpose(1, 2):flatten(2)
  x = self.norm1(x + self.dropout(self.out(mixed)))
  return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))
end

local Bert = nn.Module:extend("Bert")
function Bert:init(s)
  self.words, self.positions = nn.Embedding(s.vocabulary, s.d, {padding_idx = 0}), nn.Embedding(s.length, s.d)
  self.norm, self.dropout = nn.LayerNorm(s.d, {eps = 1e-12}), nn.Dropout(s.dropout)
  self.layers = nn.ModuleList()
  for _ = 1, s.layers do self.layers:append(Layer(s)) end
  self.pooler, self.classifier = nn.Linear(s.d, s.d), nn.Linear(s.d, s.classes)
end
function Bert:forward(ids)
  local mask = ids:ne(0):unsqueeze(1):unsqueeze(1) -- token 0 is padding
  local x = self.words(ids) + self.positions(lt.arange(ids:size(1), {device = ids.device}))
  x = self.dropout(self.norm(x))
  for _, layer in ipairs(self.layers) do x = layer(x, mask) end
  return self.classifier(self.pooler(x:select(1, 0)):tanh())
end

return zoo.model {
  name = "bert",
  sizes = {d = 384, heads = 12, layers = 6, ffn = 1536, vocabulary = 30522, classes = 2, batch = 8, length = 64,
    dropout = 0.1},
  tiny = {d = 16, heads = 2, layers = 2, ffn = 32, vocabulary = 50, classes = 3, batch = 4, length = 12, dropout = 0},
  make = function(sizes) return Bert(sizes) end,
  batch = zoo.texts,
}
