-- Train steps that return several things: losses, activations, views of them, gradients. Optimisers, modules, clipping,
-- in-place activations, one backward or two, and later uses of the results.
local python = require "python"

local unary = {"tanh", "sigmoid", "relu", "exp", "abs", "neg", "square", "sin"}
local in_place = {"relu_", "tanh_", "sigmoid_", "exp_", "neg_", "sin_", "square_"}
local optimisers = {
  {"SGD", "lr = 0.125"}, {"SGD", "lr = 0.0625, momentum = 0.5"}, {"SGD", "lr = 0.125, momentum = 0.5, nesterov = true"},
  {"Adam", "lr = 0.125, eps = 0.0625"}, {"AdamW", "lr = 0.125, weight_decay = 0.25, eps = 0.0625"},
    {"RMSprop", "lr = 0.125, eps = 0.0625"},
  {"Adagrad", "lr = 0.125, eps = 0.0625"},
}

local function setup(p, dtype)
  for i, size in ipairs {"4, 4", "4, 4", "4", "1"} do
    p:same("w%d = data(%d, %s, {dtype = '%s', requires_grad = true})", i, p:random(1000), size, dtype)
  end
  p:both("net = lt.nn.Linear(4, 4, {dtype = '" .. dtype .. "'})", "net = nn.Linear(4, 4, dtype=torch." .. dtype .. ")")
  local seed = p:random(1000)
  p:both(("lt.no_grad(function() net.weight:copy_(data(%d, 4, 4)); net.bias:copy_(data(%d, 4)) end)"):format(seed, seed
    + 1),
    ("with torch.no_grad():\n    net.weight.copy_(data(%d, 4, 4)); net.bias.copy_(data(%d, 4))"):format(seed, seed + 1))
  local class, settings = unpack(p:pick(optimisers))
  p:both(("opt = lt.optim.%s({w1, w2, w3, w4, net.weight, net.bias}, {%s})"):format(class, settings),
    ("opt = torch.optim.%s([w1, w2, w3, w4, net.weight, net.bias], %s)"):format(class, settings:gsub("true", "True")))
end

-- h1 .. h4 are of shape {n, 4}.
local function forward(p)
  local function h() return "h" .. p:random(4) end
  local function w() return p:pick {"w1", "w2"} end
  local function row() return p:pick {"w3", "w4", "net.bias"} end
  local function number() return p:pick {"0.5", "s", "-1.25", "0.125"} end
  local statements = {
    function() p:same("%s = %s:%s()", h(), h(), p:pick(unary)) end,
    function() p:same("%s = %s %s %s", h(), h(), p:pick {"+", "-", "*"}, h()) end,
    function() p:same("%s = %s:mm(%s) * 0.25", h(), h(), w()) end,
    function() p:same("%s = %s %s %s", h(), h(), p:pick {"+", "-", "*"}, row()) end,
    function() p:same("%s = net(%s) * 0.25", h(), h()) end,
    function() p:same("%s = %s * %s", h(), h(), number()) end,
    function() p:same("%s:%s()", h(), p:pick(in_place)) end,
    function() p:same("%s:%s_(%s)", h(), p:pick {"add", "mul", "sub"}, p:pick {h(), number(), row()}) end,
    function() p:same("%s = %s:softmax(%d)", h(), h(), p:random(2) - 1) end,
    function() p:same("%s = %s - %s:mean(1, {keepdim = true})", h(), h(), h()) end,
    function() p:same("%s = %s:detach()", h(), h()) end,
    function() p:same("%s = %s:clone()", h(), h()) end,
    function() p:same("%s = lt.where(%s:gt(%s), %s, %s)", h(), h(), number(), h(), h()) end,
    function() p:same("%s = lt.cat({%s, %s}, 1)['::, 2:6']", h(), h(), h()) end,
    function() p:same("%s = %s:flip({1})", h(), h()) end,
    function() p:same("%s = %s:clamp(-1, 1)", h(), h()) end,
    function() p:same("%s = lt.nn.functional.relu6(%s)", h(), h()) end,
    function() p:same("%s:clamp_(-0.5, 2)", h()) end,
    function() p:same("%s['::, 1'] = %s", h(), number()) end,
    function() p:same("%s = %s:view(-1):view(-1, 4)", h(), h()) end,
  }
  for i = 1, 4 do
    p.keep(p:same("local h%d = x %s %s", i, p:pick {"+", "*", "-"}, p:pick {"w3", "w4", "net.bias", "1"}))
  end
  for _ = 1, 2 + p:random(7) do p:pick(statements)() end
end

local function step(p)
  p:frame("step", "x, y, ids, s", function()
    if p:chance(50) then p:same("opt:zero_grad()") end
    forward(p)
    local h = function() return "h" .. p:random(4) end
    local function loss(name)
      local text = p:pick {"%s:sum()", "(%s * %s):sum()", "%s:mean()", "(%s - %s):square():mean()",
        "lt.nn.functional.mse_loss(%s, y)",
        "lt.nn.functional.cross_entropy(%s, ids)"}
      p.keep(p:same("local %s = " .. text, name, h(), h()))
    end
    loss("loss")
    local returned = {"loss"}
    if p:chance(30) then
      loss("other")
      returned[2] = "other"
    end
    if p:chance(80) then p:same("loss:backward(%s)", p:pick {"", "", "{retain_graph = true}"}) end
    if #returned == 2 and p:chance(50) then p:same("other:backward()") end
    if p:chance(20) then
      p:both("lt.nn.utils.clip_grad_norm_({w1, w2, w3}, 0.5)", "nn.utils.clip_grad_norm_([w1, w2, w3], 0.5)")
    end
    if p:chance(60) then p:same("opt:step()") end
    if p:chance(20) then p:same("%s:%s()", h(), p:pick(in_place)) end
    for _ = 1, p:random(4) do
      returned[#returned + 1] = p:pick {h(), h(), h() .. ":t()", h() .. "['1:']", h() .. ":detach()", h() .. ":sum()",
        "w1.grad", "w3.grad",
        "w1 * 2", "loss:detach()", h() .. ":view(-1)"}
    end
    p.keep(p:same("return %s", table.concat(returned, ", ")))
  end)
end

local function calls(p, dtype)
  for call = 1, 1 + p:random(3) do
    local n = p:pick {3, 3, 2, 5, 1}
    p.keep(p:same("x, y, ids = data(%d, %d, 4, {dtype = '%s'}), data(%d, %d, 4, {dtype = '%s'}), lt.arange(%d) %% 4",
      p:random(1000), n,
      dtype, p:random(1000), n, dtype, n))
    p:both(("r%d = {try('step %d', step, x, y, ids, %s)}"):format(call, call, call / 4),
      ("r%d = attempt('step %d', step, x, y, ids, %s)"):format(
      call, call, call / 4))
    for i = 1, 4 do p:same("gradient('w%d.grad', w%d.grad)", i, i) end
    p:same("gradient('net.weight.grad', net.weight.grad)")
    for _ = 1, p:random(3) - 1 do
      local from = p:random(call)
      local at = p:random(4)
      local text = p:pick {":sum():backward()", ":add_(1)", ":mul_(2)", ":detach():zero_()",
        ":sum():backward({retain_graph = true})"}
      local name = p:name("after ")
      p:attempt(name, ("r%d[%d]%s"):format(from, at + 1, text), ("r%d[%d]%s"):format(from, at, python.statement(text)))
    end
    if p:chance(20) then p:same("opt:step()") end
    if p:chance(20) then p:same("opt:zero_grad()") end
    for i = 1, 4 do p:same("see('w%d', w%d)", i, i) end
    p:same("see('net.weight', net.weight)")
  end
  for i = 1, 4 do p:same("gradient('w%d.grad', w%d.grad)", i, i) end
end

local function generate(p)
  local dtype = p:chance(30) and "float32" or "float64"
  setup(p, dtype)
  step(p)
  calls(p, dtype)
end

return {count = 40, generate = generate}
