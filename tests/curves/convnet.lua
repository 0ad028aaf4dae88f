-- convnet.lua PREFIX: the training that convnet.py wrote, from the same weights, compiled and on 2 threads. A loss may
-- differ from PyTorch's by
-- 0.2 % plus 0.05 % for each step before it, and by 1e-4: both round at each operation, in another order.
local lt = require "lutra"
local nn, functional = lt.nn, lt.nn.functional

local prefix = assert(arg[1], "usage: convnet.lua PREFIX")
local Convnet = nn.Module:extend("Convnet")
function Convnet:init()
  self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, {padding = 1}), nn.Conv2d(32, 64, 3, {padding = 1})
  self.fc1, self.fc2 = nn.Linear(64 * 49, 128), nn.Linear(128, 10)
end
function Convnet:forward(x)
  x = functional.max_pool2d(self.conv1(x):relu(), 2)
  x = functional.max_pool2d(self.conv2(x):relu(), 2)
  return self.fc2(self.fc1(x:flatten(1)):relu())
end

local net = Convnet()
net:load_state_dict(lt.load(prefix .. ".weights.npz"))
local run = lt.load(prefix .. ".run.npz")
local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-3})
lt.config.num_threads = 2

local step = lt.compile(function(x, y)
  local loss = functional.cross_entropy(net(x), y)
  opt:zero_grad()
  loss:backward()
  opt:step()
  return loss
end)

local wanted, worst, failed = run.losses:totable(), 0, false
for i, want in ipairs(wanted) do
  local got = step(run.images[i - 1], run.labels[i - 1]):item()
  local off = math.abs(got - want)
  worst = math.max(worst, off / want)
  if not (off <= (0.002 + 0.0005 * i) * want + 1e-4) then
    failed = true
    io.stderr:write(string.format("step %d: loss %.6f, PyTorch's %.6f\n", i, got, want))
  end
end
print(string.format("convnet: %d steps, loss %.4f to %.4f, at most %.3f %% from PyTorch's", #wanted, wanted[1],
  wanted[#wanted], worst * 100))
os.exit(failed and 1 or 0)
