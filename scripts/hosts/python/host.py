"""Trains a net in Lutra on arrays of NumPy; results come back as arrays. Nothing is copied."""
import sys

import numpy as np

import lutra

S = lutra.State()
S.run("""
  local nn, optim = lt.nn, lt.optim
  lt.manual_seed(3)
  net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
  local opt = optim.AdamW(net:parameters(), {lr = 0.01})
  step = lt.compile(function(x, y)
    local loss = nn.functional.mse_loss(net(x), y)
    opt:zero_grad() loss:backward() opt:step()
    return loss:detach()
  end)
  predict = function(x) return lt.no_grad(net, x) end
""")
x = np.linspace(-3, 3, 200, dtype=np.float32)[:, None]
y = np.sin(x)
step, predict = S.function("step"), S.function("predict")
for i in range(500):
    loss = step(x, y)
loss = float(np.from_dlpack(loss))
print(f"loss {loss:.5f}; sin(1) is {np.sin(1):.3f}, the net says "
      f"{np.from_dlpack(predict(np.ones((1, 1), np.float32)))[0, 0]:.3f}")

# The same memory, both ways.
t = S.tensor(x)
shared = np.from_dlpack(t)
assert shared.ctypes.data == x.ctypes.data and np.shares_memory(shared, x)
S.op("neg_", x)
assert x[0, 0] == 3 and shared[0, 0] == 3
del t, shared
try:
    S.op("matmul", x, x)
    sys.exit("a product of shapes that do not fit")
except lutra.Error as e:
    assert "cannot be multiplied" in str(e)
sys.exit(0 if loss < 0.01 else 1)
