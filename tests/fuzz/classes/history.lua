-- Functions that return several results of a step: views with offsets, in-place writes with history into tensors from
-- outside, hooks and retain_grad added late and removed, lt.grad and backward inside and outside, breaks anywhere. The
-- caller continues with the results: hooks, writes, gradients of some by others, backward in parts and twice.

-- Variables by kind: "m" {3, 4}, "r" {4}, "s" {}. A leaf that requires grad is read only.
local function generate(p)
  local pool = {m = {"w", "b", "buf", "h", "u"}, r = {"row", "x"}, s = {}}
  local writable = {m = {"buf", "h", "u"}, r = {"row"}}
  local function any(kind) return p:pick(pool[kind]) end
  local function fresh(kind, text, view)
    local t = p:name(kind)
    pool[kind][#pool[kind] + 1] = t
    if kind ~= "s" then table.insert(writable[kind], t) end
    p:line("%s = %s", t, text)
    return t
  end
  local function number() return tostring((p:random(7) - 4) / 2) end

  local unary = {"tanh", "sigmoid", "exp", "sin", "square"}
  local function value(kind)
    local choices = {
      function() return ("%s + %s"):format(any(kind), any(kind)) end,
      function() return ("%s * %s"):format(any(kind), any(kind)) end,
      function() return ("%s - %s"):format(any(kind), number()) end,
      function() return ("%s:%s()"):format(any(kind), p:pick(unary)) end,
      function() return ("%s * %s"):format(any(kind), number()) end,
      function() return any(kind) .. ":detach()" end,
      function() return any(kind) .. ":clone()" end,
    }
    if kind == "m" then
      choices[#choices + 1] = function() return ("%s * %s"):format(any "m", any "r") end
      choices[#choices + 1] = function() return ("%s + %s:sum(0)"):format(any "m", any "m") end
      choices[#choices + 1] = function() return ("%s:softmax(1)"):format(any "m") end
      choices[#choices + 1] = function() return ("%s:mm(%s:t()):mm(%s) * 0.1"):format(any "m", any "m", any "m") end
      choices[#choices + 1] = function() return ("lt.cat({%s[0], %s:reshape(-1)['4:12']}):view(3, 4)"):format(any "m",
        any "m") end
    else
      choices[#choices + 1] = function() return any "m" .. ":sum(0)" end
      choices[#choices + 1] = function() return any "m" .. ":mean(0)" end
      choices[#choices + 1] = function() return ("%s[%d]"):format(any "m", p:random(3) - 1) end
      choices[#choices + 1] = function() return ("%s:select(0, %d)"):format(any "m", p:random(3) - 1) end
      choices[#choices + 1] = function() return any "m" .. ":diagonal():sum() * " .. any "r" end
    end
    return p:pick(choices)()
  end
  local function loss()
    local m = any "m"
    return p:pick {("(%s * %s):sum()"):format(m, any "m"), ("(%s * %s):sum()"):format(m, any "r"), m .. ":tanh():sum()",
      m .. ":mean()"}
  end

  local inside, step  -- inside: in the frame
  local function write()
    local kind = p:pick {"m", "r"}
    local t = p:pick(writable[kind])
    local writes = {
      function() return ("%s:add_(%s)"):format(t, any(kind)) end,
      function() return ("%s:copy_(%s)"):format(t, value(kind)) end,
      function() return ("%s:mul_(%s)"):format(t, number()) end,
      function() return ("%s:mul_(%s)"):format(t, any(kind)) end,
      function() return t .. ":zero_()" end,
      function() return ("%s:sub_(%s)"):format(t, value(kind)) end,
    }
    if kind == "m" then
      writes[#writes + 1] = function() return ("%s[%d] = %s"):format(t, p:random(3) - 1, value "r") end
      writes[#writes + 1] = function() return ("%s[%d]:add_(%s)"):format(t, p:random(3) - 1, any "r") end
      writes[#writes + 1] = function() return ("%s['1:']:copy_(%s['1:'])"):format(t, any "m") end
      writes[#writes
        + 1] = function() return ("%s:index_add_(0, lt.tensor({0, 2}, {dtype = 'int64'}), %s['1:'])"):format(t,
        any "m") end
      writes[#writes + 1] = function() return ("%s:t()[%d]:mul_(0.5)"):format(t, p:random(4) - 1) end
    end
    p:line(p:pick(writes)())
  end
  local function hook()
    local t = p:pick(pool[p:pick {"m", "m", "r"}])
    local scale = p:pick {"0", "2", "0.5"}
    if p:chance(25) then return p:line("if %s.requires_grad then %s:retain_grad() end", t, t) end
    local body = p:pick {("return g * %s"):format(scale), "seen[#seen + 1] = g:sum():item()",
      "return g:t():contiguous():t() * " .. scale}
    if t:match "^r" or t == "x" then body = "return g * " .. scale end
    p:line("if %s.requires_grad then handles[#handles + 1] = %s:register_hook(function(g) %s end) end", t, t, body)
    if p:chance(30) then p:line("if #handles > 0 then handles[#handles].remove() end") end
  end
  local function gradient()
    local kind = p:pick {"m", "m", "r"}
    local of = any(kind)
    local create = p:chance(40) and "true" or "false"
    local g = p:name(kind)
    p:line("do local l = %s; if l.requires_grad and %s.requires_grad then %s = lt.grad(l, %s, {allow_unused = true, create_graph = %s, "
      .. "retain_graph = true}) end; %s = %s or lt.zeros_like(%s) end", loss(), of, g, of, create, g, g, of)
    table.insert(pool[kind], g)
  end
  local function backward()
    p:line("do local l = %s; if l.requires_grad then l:backward(nil, {retain_graph = %s}) end end", loss(), p:chance(70)
      and "true" or "false")
  end
  local function break_() if inside then p:line(p:pick {"lt.graph_break()", "note(1)"}) end end
  local function blocks()
    local head, tail = "do", "end"
    local kind = p:random(3)
    if kind == 1 then head = "for i = 1, 2 do" end
    if kind == 2 then head, tail = "lt.no_grad(function()", "end)" end
    p:block(head, function() for _ = 1, p:random(3) do step() end end, tail)
  end
  function step()
    local n = p:random(100)
    if n <= 45 then
      local kind = p:pick {"m", "m", "r"}
      if p:chance(75) then return fresh(kind, value(kind)) end
      return p:line("%s = %s", p:pick(writable[kind]), value(kind))
    elseif n <= 70 then return write()
    elseif n <= 77 then return hook()
    elseif n <= 83 then return gradient()
    elseif n <= 88 then return backward()
    elseif n <= 95 then return break_()
    else return blocks() end
  end

  p.keep(p:line("local seen, handles = {}, {}"))
  p.keep(p:line("local function note(v) seen[#seen + 1] = v end"))
  p.keep(p:line("w, b, x = data(1, 3, 4, {requires_grad = true}), data(2, 3, 4), data(3, 4, {requires_grad = true})"))
  p.keep(p:line("buf = lt.zeros(3, 4)"))
  local outside = p:pick {"w * 2", "w + b", "b * 1"}
  p.keep(p:block("local function start()", function()
    p.keep(p:line("h = %s", outside))
    p.keep(p:line("base = %s", p:pick {"lt.zeros(4, 4)", "lt.cat({w, b})", "lt.zeros(4, 4)"}))
    p.keep(p:line("u = base['1:4']"))
    p.keep(p:line("row = %s", p:pick {"buf[1]:clone()", "x * 1", "base[0]"}))
  end))
  local marks = {m = #pool.m, r = #pool.r}
  inside = true
  p.keep(p:block("local f = frame(function(w, b, x, buf, h, u, row)", function()
    -- These are variables of the frame, so that they are its results.
    for _ = 1, 4 + p:random(9) do step() end
    local out = {}
    for _, kind in ipairs {"m", "m", "r", "m"} do out[#out + 1] = any(kind) end
    p.keep(p:line("return %s, %s", table.concat(out, ", "), loss()))
  end, "end)"))
  inside = false
  local function forget(kind)
    for i = #pool[kind], marks[kind] + 1, -1 do table.remove(pool[kind], i) end
    for i = #writable[kind], 1, -1 do
      if writable[kind][i]:match "%d" then table.remove(writable[kind], i) end
    end
  end
  p.keep(p:block("local function call(n)", function()
    p.keep(p:line("start()"))
    p.keep(p:line("seen = {}"))
    p.keep(p:line("local ok, a1, a2, a3, a4, l = try('f', f, w, b, x, buf, h, u, row)"))
    p.keep(p:line("if not ok then return end"))
    p.keep(p:line(
      "see('leaf', a1.is_leaf, a2.is_leaf, a3.is_leaf, a4.is_leaf, buf.is_leaf, h.is_leaf, u.is_leaf, row.is_leaf)"))
    p.keep(p:line("see('inputs', buf, h, u, row, base)"))
    forget "m"
    forget "r"
    for _, t in ipairs {"a1", "a2", "a4"} do
      table.insert(pool.m, t)
      table.insert(writable.m, t)
    end
    table.insert(pool.r, "a3")
    table.insert(writable.r, "a3")
    p.keep(p:block("try('after', function()", function() for _ = 1, p:random(5) do step() end end, "end)"))
    for _, t in ipairs {"l", "a" .. p:random(4) .. ":sum()",
      p:pick {"buf:sum()", "(u * u):sum()", "base:sum()", "(h * w):sum()"}} do
      p:line("try('backward', function() local l = %s; if l.requires_grad then l:backward(nil, {retain_graph = %s}) end end)", t,
        p:chance(60) and "true" or "false")
    end
    p:line("for _, g in ipairs {a1.grad or false, a2.grad or false, a3.grad or false, a4.grad or false} do gradient('kept', g or nil) end")
    p.keep(p:line("gradient('w', w.grad); gradient('x', x.grad)"))
    p.keep(p:line("see('seen', seen)"))
    p:line("for _, t in ipairs(handles) do t.remove() end")
    p:line("w.grad, x.grad = nil, nil")
    if p:chance(50) then p:line("buf = buf:detach()") end
  end))
  p.keep(p:line("call(1)"))
  p:line("call(2)")
  p:line("call(3)")
end

return {count = 60, generate = generate}
