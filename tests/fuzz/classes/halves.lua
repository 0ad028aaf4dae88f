-- Networks of bfloat16: convolutions, products and linear layers with what may be fused to them, pools, views, other
-- layouts, autocast of float32; their gradients, and gradients of weights that come twice.
local function generate(p)
  local dtype = p:chance(75) and "bfloat16" or "float32"
  local channels, side = p:pick {1, 4, 8, 16, 33}, p:pick {1, 3, 5, 8}
  local grows = p:chance(30)
  local function weight(name, seed, ...)
    local sizes = table.concat({...}, ", ")
    p.keep(p:line("%s = data(%d, %s, {dtype = '%s', requires_grad = true})", name, seed, sizes, dtype))
  end
  local groups = channels % 4 == 0 and p:pick {1, 2, 4} or 1
  weight("wide", 1, channels, channels, 3, 3)
  weight("point", 2, channels, channels, 1, 1)
  weight("split", 3, channels, channels / groups, 2, 2)
  weight("square", 4, side, side)
  weight("mixes", 5, channels, channels)
  weight("bias", 6, channels)
  weight("shift", 7, side)
  p.keep(p:line("functional = lt.nn.functional"))

  local steps = {
    "functional.conv2d(y, wide, bias, 1, 1)", "functional.conv2d(y, wide, nil, 1, 1)",
    "functional.conv2d(y, wide, nil, 1, 2, 2)", "functional.conv2d(y, point, bias)", "functional.conv2d(y, point)",
    ("functional.conv2d(y, split, bias, 1, 1, 1, %d)['..., :-1, :-1']"):format(groups),
    ("functional.conv_transpose2d(y, wide, bias, 1, 1)"), "functional.linear(y, square, shift)",
    "functional.linear(y, square)", "y:matmul(square)", "square:matmul(y)",
    "lt.einsum('oc,nchw->nohw', mixes, y)", "functional.linear(y:permute(0, 2, 3, 1), mixes, bias):permute(0, 3, 1, 2)",
    "y:relu()", "functional.gelu(y)", "y:sigmoid() + x", "y * 0.5 + x", "y + shift", "y - y:mean({2, 3}, true)",
    "y:softmax(1)", "y:transpose(2, 3)", "y:contiguous{memory_format = 'channels_last'}", "y:clone()",
    "functional.max_pool2d(y, 3, 1, 1)", "functional.avg_pool2d(y, 3, 1, 1)", "y:flip({2})",
    "y:to('float32'):to(y.dtype)",
    "lt.autocast('cpu', {dtype = lt.bfloat16}, functional.conv2d, y, wide, bias, 1, 1):to(x.dtype)",
    "lt.autocast('cpu', {dtype = lt.bfloat16}, lt.matmul, y, square):to(x.dtype)",
  }
  p.keep(p:block("f = frame(function(x)", function()
    p.keep(p:line("local y = x"))
    for _ = 1, 1 + p:random(6) do
      p:line("y = %s", p:pick(steps))
      if p:chance(5) then p:line("lt.graph_break()") end
      if p:chance(10) then p:line("y:mul_(0.5)") end
    end
    p.keep(p:line("return y%s", p:pick {"", ", y:sum()", ", y:amax(1)"}))
  end, "end)"))
  for call = 1, 1 + p:random(3) do
    local n = grows and call or p:pick {1, 2}
    p.keep(p:line("x = data(%d, %d, %d, %d, %d, {dtype = '%s', requires_grad = %s}) * 1", 10 + call, n, channels, side,
      side, dtype, tostring(p:chance(70))))
    if p:chance(30) then p:line("x = x:contiguous{memory_format = 'channels_last'}") end
    p:line("x:requires_grad_()")
    p.keep(p:line("ok, y = try('f %d', f, x)", call))
    p:attempt("backward " .. call, p:pick {"(y * y):sum():backward()", "y:sum():backward()", "y:backward(y:detach())"})
  end
  for _, name in ipairs {"wide", "point", "split", "square", "mixes", "bias", "shift"} do
    p:line("gradient('%s', %s.grad)", name, name)
  end
end

return {count = 40, generate = generate}
