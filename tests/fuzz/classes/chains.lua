-- Programs of 10^2 to 10^4 steps: numbers that are used twice at each step, chains of ops and views, lists of tables,
-- all in loops whose bodies are random, called with several sizes and numbers.
local updates = {
  "a = a + b", "a = a * b + 1", "b = a - b", "a, b = b, a + b", "a = a * a * k", "b = -a * 0.5", "a = a % 7 + k",
    "b = math.floor(b / 3) + i",
  "a = math.abs(a) ^ 0.5", "b = k * b * (1 - b)", "a = a / (b + 2)", "n = n + i % 3", "n = n * 2 % 1000", "a = a + n",
    "if a > b then a = a - n end",
  "if not (math.abs(a) < 1e9) then a = k end", "if not (math.abs(b) < 1e9) then b = 1 end",
    "if i % 50 == 0 then a, b = k, 0.25 end",
}
local ops = {
  "x = x + i % 5", "x = x * 0.5 + y", "x = x:t()", "x = x:t():contiguous()", "y = x:relu() - 0.25",
    "x = (x * k):tanh()", "x, y = y, x + y",
  "x = x:view(-1):view(x.shape[1], x.shape[2])", "y = y:clone() y:mul_(0.5)", "x = x - a % 1",
    "x = lt.where(x:gt(0), x, y)",
}
local tables = {
  "list = {next = list, value = i}", "log[#log + 1] = a", "log[i % 10 + 1] = n", "table.insert(log, i)",
    "if #log > 20 then table.remove(log) end",
}

local function generate(p)
  local length = ({100, 1000, 10000})[p:random(3)]
  local with_tensors = p:chance(60)
  if with_tensors then length = length / 5 end
  p.keep(p:block("f = frame(function(x, k)", function()
    p.keep(p:line("local a, b, n, y, list, log = k, 0.25, x.shape[1], x * 2, nil, {}"))
    p:block(("for i = 1, %d do"):format(length), function()
      for _ = 1, 1 + p:random(4) do p:line(p:pick(updates)) end
      if with_tensors then
        for _ = 1, p:random(3) do p:line(p:pick(ops)) end
      end
      if p:chance(30) then p:line(p:pick(tables)) end
    end)
    p:line("local depth = 0 while list do list, depth = list.next, depth + list.value end")
    p.keep(p:line("return (x + y:sum()):tanh() * a, b, n, #log, depth"))
  end, "end)"))
  for call = 1, 3 do
    local size, number = p:pick {2, 3, 4}, p:pick {"0.5", "0.75", "2", "-0.0", "3.7"}
    p:line("try('f %d', f, data(%d, %d, %d, {dtype = 'float64'}), %s)", call, call, size, size, number)
  end
  if with_tensors and p:chance(40) then
    p:line("w = data(9, 3, 3, {requires_grad = true})")
    p:line("g = frame(function(w) w.grad = nil local r = f(w, 0.5) r:sum():backward() return w.grad end)")
    p:line("for _ = 1, 2 do see('gradient', pcall(g, w)) end")
  end
end

return {count = 4, generate = generate}
