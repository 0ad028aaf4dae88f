-- Loops whose number of rounds changes with each call: by a number, by a size of a tensor, by what item() reads, with
-- fractional bounds and steps, nested, over lists that grow; `for`, `while`, `repeat`, `goto`. Sizes include 0 and 1;
-- some tensors are views or require gradients.
local bounds = {"for i = 1, n do", "for i = 0, n - 1 do", "for i = n, 1, -1 do", "for i = 0, n, 0.5 do",
  "for i = n / 2, n do", "for i = 1, n, 2 do", "for i = 0.25, n do", "for i = 1, v do", "for i = v, n do",
  "for i = 1, math.max(n, v) do", "for i = 1, #x do", "for i = v / 2, v, 0.5 do", "for i = 1, x:size(0) do",
  "for i = 1, x.shape[2] do"}
local inner = {"for k = 1, i do", "for k = 1, n do", "for k = i, n do", "for k = 1, 2 do", "for k = 0, i, 0.5 do"}

-- Other loops that count in i: the statement before, the head, the step to the next round, the end. n is whole and not
-- negative.
local others = {{"i = 1", "while i <= n do", "i = i + 1", "end"}, {"i = n", "while i > 0 do", "i = i - 1", "end"},
  {"i = 0", "while i < v do", "i = i + 1", "end"}, {"i = 1", "while i <= #x do", "i = i + 1", "end"},
  {"i = 0.5", "while i < n do", "i = i + 1", "end"}, {"i = n", "while i >= 1 do", "i = math.floor(i / 2)", "end"},
  {"i = 8", "while i > math.max(v, 0) + 0.1 do", "i = i * 0.5", "end"},
  {"i = 0", "while i ~= n do", "i = i + 1", "end"},
  {"i = 1", "while true do", "if i >= n then break end i = i + 1", "end"},
  {"i = 1", "while i <= n and i <= v do", "i = i + 1", "end"},
  {"i = 1", "while i <= n or i < 3 do", "i = i + 1", "end"},
  {"i = 1", "while not (i > n) do", "i = i + 2", "end"}, {"i = 1", "repeat", "i = i + 1", "until i > n"},
  {"i = 0", "repeat", "i = i + 1", "until i >= v"}, {"i = 0", "repeat local was = i", "i = i + 1", "until was >= n"},
  {"i = 1", "::top::", "i = i + 1", "if i <= n then goto top end"},
  {"i = 0", "::top:: if i < n then", "i = i + 1 goto top", "end"},
  {"i, more = 1, n > 0", "while more do", "i = i + 1 more = i <= n", "end"},
  {"i = 1", "while x.shape[1] >= i do", "i = i + 1", "end"}}
-- Reads of n from tensors, with its own value.
local reads = {"n = (lt.ones(1) * n):item()", "n = x[{':', 0}]:gt(-1000):sum():item()",
  "n = #x[{':', 0}]:gt(-1000):nonzero()", "n = (lt.ones(1) * n):tolist()[1]",
  "n = x[{':', 0}]:gt(-1000):nonzero().shape[1]"}

-- Statements on y, which has the sizes of x, on s, which has three elements, and on i.
local body = {"y = y * 1.5 + i", "y = y + x", "s = s + y:sum(0)", "s = s + i", "y = y + s", "y = y * s:sum()",
  "y = y:relu() - i", "if n > 0 then s = s + x[math.floor(i) % n] end", "list[#list + 1] = y * i",
  "list[#list + 1] = i", "y = y - y:mean()", "y = y:matmul(m)", "s = s + x:t():matmul(y):sum(0)", "y = lt.cat {y, x}",
  "s = s + lt.ones(3) * y.shape[1]", "total = total + i", "y = y:softmax(1)", "y[{':', 0}] = i",
  "y = y * lt.arange(3)", "s = s + y:narrow(0, 0, n):sum(0)", "y = y:view(-1, 3) + 1", "y = y:t():contiguous():t()",
  "y = y:cumsum(0)", "s = s + lt.zeros(math.floor(math.abs(i)), 3):sum(0)", "y = y + x:amax(1, true)",
  "if i > 3 then s = s * 2 end", "y = y:flip(0)", "s = s + #list", "y = x:mul(2):add(y:detach())",
  "y = lt.where(y:gt(0), y, x)", "y = y + (lt.ones(n, 1) * i)", "y = y / y:std(0)", "y = y + y[{{0, 1}}]:sum()",
  "s = s + y:view(-1):sum()", "s = s + keys[math.floor(math.abs(i)) % 5 + 1]", "s = s + keys[#y % 5 + 1]",
  "s = s + keys[n % 5 + 1]", "y = ways[n % 3 + 1](y)", "y = ways[math.floor(math.abs(i)) % 3 + 1](y)",
  "keys[n % 5 + 1] = i", "list[i] = y * 1", "list[i + 1] = i", "keys[(n + 1) % 5 + 1] = keys[n % 5 + 1] + 1",
  "keys[#keys + 1] = i", "keys[math.floor(math.abs(i)) % #keys + 1] = n", "s = s + keys[#keys]",
  "if #list > 0 then s = s + (list[#list] * 1):sum() end", "keys[#keys] = s[0]", "list[#list] = i"}
local around = {"y = y * 2", "s = s + y:sum(0)", "y = y + s", "n = n + 0", "y = y:t():contiguous():t()",
  "y = x:view(-1, 3) * 1", "y = y:matmul(m)", "s = s:exp()", "y = x:clone()", "y = y:squeeze(0):view(-1, 3)",
  "local k = y.shape[1]; s = s + k"}
local results = {"lt.stack(list, 0)", "lt.cat(list, 0)", "y", "s", "y:sum()", "y:stride()", "#list", "y.shape",
  "y:t()", "y:is_contiguous()", "y * s", "n", "total"}
local inputs = {"data(%d, %d, 3)", "data(%d, %d, 3)", "data(%d, %d, 3)", "data(%d, 3, %d):t()",
  "data(%d, 9, 3):narrow(0, 1, %d)", "data(%d, 9, 6)[{{0, %d}, {0, 3}}]", "data(%d, 1, 3):expand(%d, 3)",
  "data(%d, %d, 3, {requires_grad = true})"}

-- Adds a loop. fill(may_break) adds its body: a body cannot break out of `goto` loops.
local function loop(p, fill)
  if p:chance(50) then return p:block(p:pick(bounds), function() fill(true) end) end
  local other = p:pick(others)
  local function named(text) return (text:gsub("top", p.label)) end
  p.label = p:name("top")
  p.keep(p:line("local %s", other[1]))
  p:block(named(other[2]), function()
    fill(not other[2]:find "::")
    p.keep(p:line("%s", named(other[3])))
  end, named(other[4]))
end

local function generate(p)
  p.keep(p:line("m, total, keys = data(7, 3, 3), 0, {1.5, 2, 3, 0.25, 5}"))
  p.keep(p:line("ways = {function(t) return t * 2 end, function(t) return t:relu() end, lt.abs}"))
  p.keep(p:block("f = frame(function(x, v)", function()
    p.keep(p:line("local y, s, list, n = x * 1, m[0] + 1, {}, x.shape[1]"))
    for _ = 1, p:random(3) - 1 do p:line("%s", p:pick(around)) end
    if p:chance(25) then p:line("%s", p:pick(reads)) end
    for _ = 1, p:random(2) do
      loop(p, function(may_break)
        for _ = 1, p:random(3) do p:line("%s", p:pick(body)) end
        if p:chance(25) then
          p:block(p:pick(inner), function() p:line("%s", p:pick(body)) end)
        end
        if may_break and p:chance(15) then p:line("if i >= %d then break end", p:random(5)) end
      end)
      if p:chance(50) then p:line("%s", p:pick(around)) end
    end
    if p:chance(20) then p:line("if y.requires_grad then y:sum():backward() end") end
    p.keep(p:line("return y, s, list, %s", p:pick(results)))
  end, "end)"))
  local made = p:chance(50) and inputs[1]
  for call = 1, 6 + p:random(6) do
    local n, v = p:pick {0, 1, 0, 1, 2, 3, 4, 5, 7}, p:pick {"0", "1", "2", "3", "5", "-1", "6"}
    if p:chance(5) then v = p:pick {"nil", "1.5", "'2'"} end
    p:line("try('f %d', f, %s, %s)", call, (made or p:pick(inputs)):format(call, n), v)
  end
  p:line("see('total', total)")
end

return {count = 40, generate = generate}
