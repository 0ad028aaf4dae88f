-- Sizes and layouts that change from call to call: sums, convolutions of small kernels and views, over tensors in
-- memory by rows, by channels, transposed, cut and broadcast; gradients in such layouts.
local unary = {"exp", "tanh", "abs", "square"}
local reductions = {"sum", "mean", "amax", "amin"}
local dims = {
  "0", "1", "2", "3", "{0, 2, 3}", "{0, 1}", "{1, 2}", "{2, 3}", "{1, 3}", "{0, 3}", "{0, 1, 2}", "{1, 2, 3}",
}
local layouts = {
  "%s:contiguous()", "%s:contiguous {memory_format = 'channels_last'}",
  "%s:transpose(2, 3):contiguous():transpose(2, 3)", "%s:transpose(0, 1):contiguous():transpose(0, 1)",
  "%s:permute(3, 1, 0, 2):contiguous():permute(2, 1, 3, 0)", "lt.cat({%s, %s}, 3):narrow(3, 0, %s:size(3))",
  "%s:narrow(1, 0, 1):expand(%s:size(0), %s:size(1), %s:size(2), %s:size(3))",
  "lt.cat({%s, %s}, 1):narrow(1, 0, %s:size(1))",
}

local function generate(p)
  local function laid(name) return (p:pick(layouts):gsub("%%s", name)) end
  local values = {"x"}
  local function statement()
    local v, t = p:pick(values), p:name "t"
    local choices = {
      function() p:line("%s = %s:%s()", t, v, p:pick(unary)) end,
      function() p:line("%s = %s + %s:%s(%s, true)", t, v, v, p:pick(reductions), p:pick(dims)) end,
      function() p:line("%s = %s * %s", t, v, p:pick(values)) end,
      function() p:line("%s = %s", t, laid(v)) end,
      function() p:line("%s = lt.nn.functional.conv2d(%s, w, %s) + %s:sum(1, true)", t, v, p:pick {"b", "nil"}, v) end,
      function() p:line("%s = lt.nn.functional.conv_transpose2d(%s, w, %s)", t, v, p:pick {"b", "nil"}) end,
      function() p:line("%s = %s + b:view(1, -1, 1, 1)", t, v) end,
      function() p:line("%s = %s - %s:reshape(%s:size(0), -1):sum(1):view(-1, 1, 1, 1)", t, v, v, v) end,
      function() p:line("%s = %s:softmax(%s)", t, v, p:pick {"0", "1", "2", "3"}) end,
      function() p:line("%s = %s:flatten(2):cumsum(2):view(%s:shape())", t, v, v) end,
      function() p:line("%s = %s:clone(); %s[{':', 0}] = %s:sum(1)", t, v, t, v) end,
      function() p:line("%s = %s + %s:permute(1, 0, 2, 3):sum({0, 2, 3}):view(-1, 1, 1, 1)", t, v, v) end,
    }
    p:pick(choices)()
    values[#values + 1] = t
  end

  local dtype = p:pick {"float32", "float32", "float64"}
  p.keep(p:block("f = frame(function(x, w, b, v, c)", function()
    for _ = 1, 1 + p:random(3) do statement() end
    if p:chance(50) then
      local last = values[#values]
      values[#values + 1] = p:name "t"
      p:line("%s = %s; %s = lt.nn.functional.conv_transpose2d(%s, v, c)", values[#values], last, values[#values], last)
    end
    p.keep(p:line("return %s", p:pick {values[#values], values[#values], values[#values] .. ":sum({0, 2, 3})"}))
  end, "end)"))
  local fixed, keep = {}, {}
  for d = 1, 4 do fixed[d], keep[d] = p:random(4), p:chance(40) end
  for call = 1, 3 + p:random(3) do
    local s = {}
    for d = 1, 4 do s[d] = keep[d] and fixed[d] or p:random(4) end
    p:block(("try('call %d', function()"):format(call), function()
      p.keep(p:line("local x = data(%d, %d, %d, %d, %d, {dtype = '%s'})", call, s[1], s[2], s[3], s[4], dtype))
      p:line("x = %s", laid "x")
      p.keep(p:line("x = x:detach():requires_grad_()"))
      p.keep(p:line("local w = data(7, %d, %d, 1, 1, {dtype = '%s', requires_grad = true})", s[2], s[2], dtype))
      p.keep(p:line("local b = data(8, %d, {dtype = '%s', requires_grad = true})", s[2], dtype))
      local of = p:random(4)
      p.keep(p:line("local v = data(6, %d, %d, 1, 1, {dtype = '%s', requires_grad = true})", s[2], of, dtype))
      p.keep(p:line("local c = data(5, %d, {dtype = '%s', requires_grad = true})", of, dtype))
      p.keep(p:line("local y = f(x, w, b, v, c)"))
      p.keep(p:line("local g = lt.ones_like(y) * 0.5"))
      p:line("if g:dim() == 4 then g = %s end", laid "g")
      p.keep(p:line("if y.requires_grad then y:backward(g) end"))
      p:line("gradient('x', x.grad)")
      p:line("gradient('w', w.grad)")
      p:line("gradient('b', b.grad)")
      p:line("gradient('v', v.grad)")
      p:line("gradient('c', c.grad)")
      p:line("see('y', y)")
    end, "end)")
  end
end

return {count = 12, generate = generate}
