-- char_gpt.lua PREFIX: the training that char_gpt.py wrote, from the same weights, compiled and on 2 threads. A loss
-- may differ from PyTorch's by 0.2 % plus 0.05 % for each step before it: both round at each operation, in another
-- order.
local lt = require "lutra"
local GPT = dofile "../../scripts/models/gpt.lua"

local prefix = assert(arg[1], "usage: char_gpt.lua PREFIX")
local net = GPT {d = 64, heads = 4, layers = 2, vocabulary = 40, length = 48}
net:load_state_dict(lt.load(prefix .. ".weights.npz"))
local run = lt.load(prefix .. ".run.npz")
local opt = lt.optim.AdamW(net:parameters(), {lr = 2e-3})
lt.config.num_threads = 2

local step = lt.compile(function(x, y)
  local loss = lt.nn.functional.cross_entropy(net(x):flatten(0, 1), y:reshape(-1))
  opt:zero_grad()
  loss:backward()
  opt:step()
  return loss
end)

local wanted, worst, failed = run.losses:totable(), 0, false
for i, want in ipairs(wanted) do
  local pieces = run.ids[i - 1]
  local got = step(pieces:narrow(1, 0, 48):contiguous(), pieces:narrow(1, 1, 48):contiguous()):item()
  local off = math.abs(got - want) / want
  worst = math.max(worst, off)
  if not (off <= 0.002 + 0.0005 * i) then
    failed = true
    io.stderr:write(string.format("step %d: loss %.6f, PyTorch's %.6f\n", i, got, want))
  end
end
print(string.format("char_gpt: %d steps, loss %.4f to %.4f, at most %.3f %% from PyTorch's", #wanted, wanted[1],
  wanted[#wanted], worst * 100))
os.exit(failed and 1 or 0)
