-- Views with offsets and strides, arguments that share memory, in-place writes with and without history, within calls
-- and between them.
local views = {"B['0:3']", "B['1:4']", "B['3:6']", "B['::2']", "B:view(3, 8)['::, 4:8']", "B:view(4, 6):t()['::2']",
  "B:view(2, 3, 4)[1]",
  "B:narrow(0, 2, 3)", "B:as_strided({3, 4}, {4, 1}, 8)", "B:as_strided({3, 4}, {1, 3}, 4)", "B['1:4']:flip({0})",
    "B['0:3']:clone()"}

local apart = {{"B['0:3']", "B['3:6']"}, {"B:view(3, 8)['::, 0:4']", "B:view(3, 8)['::, 4:8']"},
  {"B:view(2, 3, 4)[1]", "B:narrow(0, 0, 3)"},
  {"B:as_strided({3, 4}, {4, 1}, 12)", "B:as_strided({3, 4}, {1, 3}, 0)"},
    {"B:view(4, 6):t()['::2']", "B:view(4, 6):t()['1::2']"}}

local function generate(p)
  local dtype = p:chance(70) and "float64" or "float32"
  local options = (", {dtype = '%s'})"):format(dtype)
  local function source() return p:pick {"base", "base", "base", "grown", "other"} end

  -- PyTorch does not define writes to memory that overlaps in part.
  local overlap = p:chance(50)
  p.keep(p:same("base = data(%d, 6, 4%s", p:random(1000), options))
  p.keep(p:same("other = data(%d, 6, 4%s", p:random(1000), options))
  p.keep(p:same("w = data(%d, 3, 4, {dtype = '%s', requires_grad = true})", p:random(1000), dtype))
  p.keep(p:same("g = data(%d, 4, {dtype = '%s', requires_grad = true})", p:random(1000), dtype))
  p.keep(p:same("grown = data(%d, 6, 4%s", p:random(1000), options .. (p:chance(50) and " * g" or "")))

  local function value() return p:pick {"u", "v", "r", "u * w", "w", "g", "r * 2", overlap and "v['1']" or "v * 2",
    "u['0'] * g", "v:t():t()"} end
  local statements = {
    function() p:same("%s:%s_(%s)", p:pick {"u", "v", "r"}, p:pick {"add", "mul", "sub", "copy"}, value()) end,
    function() p:same("%s:%s_(%s)", p:pick {"u", "v", "r"}, p:pick {"add", "mul"}, p:pick {"0.5", "k", "-2"}) end,
    function() p:same("%s[%s] = %s", p:pick {"u", "v", "r"}, p:pick {"1", "-1", "'1:'", "'::, 2'"},
      p:pick {"0.25", "k"}) end,
    function() p:same("%s[%s] = %s", p:pick {"u", "v", "r"}, p:pick {"0", "2"},
      p:pick {"g", overlap and "v['1']" or "w['1']", "u['0'] * g", "w['2']"}) end,
    function() p:same("%s['1:3']:%s_(%s)", p:pick {"u", "v", "r"}, p:pick {"add", "mul"},
      p:pick {"g", "k", "w['0:2']"}) end,
    function() p:same("%s:t():%s_(2)", p:pick {"u", "v", "r"}, p:pick {"add", "mul"}) end,
    function() p:same("%s = %s", p:pick {"u", "v", "r"},
      p:pick {"u", "v", "r", "u['::']", "v:view_as(u)", "u:detach()", "r:clone()", "r + 0"}) end,
    function()  -- a source that is read, copied and written itself
      local to, from = unpack(p:pick {{"u", "v"}, {"v", "u"}})
      if p:chance(50) then p:same("r = r + %s", from) end
      p:same("%s:copy_(%s)", to, from)
      p:same("%s:%s_(%s)", from, p:pick {"add", "mul"}, p:pick {"k", "0.5"})
    end,
    function() p:same("r = %s %s %s", value(), p:pick {"+", "*", "-"}, p:pick {"u", "v", "r", "w"}) end,
    function() p:same("%s:%s_()", p:pick {"u", "v", "r"}, p:pick {"zero", "neg", "tanh", "relu", "detach"}) end,
    function() p:same("r = r + %s:storage_offset()", p:pick {"u", "v"}) end,
    function() p:same("r = r * %s:stride(%d)", p:pick {"u", "v"}, p:random(2) - 1) end,
    function() p:both("lt.graph_break()", "") end,
    function() p:same("inner = %s", p:pick {"u['1:']", "v:t()", "r['0']", "u * w"}) end,
    function() p:same("base[%s] = %s", p:random(6) - 1, p:pick {"g", "k", overlap and "u['0']" or "w['0']"}) end,
    function() p:same("base:%s_(%s)", p:pick {"add", "mul"}, p:pick {"k", "g", "0.5"}) end,
    function() p:both("lt.no_grad(function() u:add_(1) end)", "with torch.no_grad():\n    u.add_(1)") end,
  }
  p:frame("f", "u, v, k", function()
    p.keep(p:both("", "global inner"))
    p.keep(p:same("local r = u * %s", p:pick {"w", "2", "g"}))
    for _ = 1, 2 + p:random(6) do
      p:both("", "fresh(u, v, r)")
      p:pick(statements)()
    end
    p.keep(p:same("return %s",
      p:pick {"r", "r, u", "r, v", "u, v", "r['1:'], u", "r, u:t()", "r:sum(), base", "r, u, u['1']"}))
  end)
  for call = 1, 2 + p:random(3) do
    if p:chance(25) then p:same("base = data(%d, 6, 4%s", p:random(1000), options) end
    if p:chance(25) then
      p:same("grown = data(%d, 6, 4%s", p:random(1000), options .. (p:chance(50) and " * g" or ""))
    end
    local of_a, of_b = source(), source()
    local pair = overlap and {p:pick(views), p:pick(views)} or p:pick(apart)
    p:same("a, b = %s, %s", (pair[1]:gsub("B", of_a)), (pair[2]:gsub("B", of_b)))
    local arguments = ("'f %d', f, a, %s, %s"):format(call, p:pick {"b", "b", "b", "a"}, call / 2)
    p:both(("r%d = {try(%s)}"):format(call, arguments), ("r%d = attempt(%s)"):format(call, arguments))
    p:same("see('base', base)")
    p:same("see('grown', grown)")
    p:same("see('a', a, b)")
    for _ = 1, p:random(3) - 1 do
      local from, at = p:random(call), p:random(2)
      local text = p:pick {":sum():backward()", ":sum():backward({retain_graph = true})", ":add_(1)", ":mul_(2)"}
      p:attempt(p:name("after "), ("r%d[%d]%s"):format(from, at + 1, text),
        ("fresh(r%d[%d]); r%d[%d]%s"):format(from, at,
        from, at, require("python").statement(text)))
    end
    if p:chance(30) then
      p:both("", "fresh(a, b, base)")
      p:attempt(p:name("base "),
        p:pick {"base:sum():backward()", "grown:sum():backward()", "base:mul_(2)", "a:add_(1)", "b:copy_(a)",
        "inner:sum():backward()", "inner:mul_(3)", "base:detach_()"})
    end
    p:same("gradient('w.grad', w.grad)")
    p:same("gradient('g.grad', g.grad)")
  end
  p:attempt("last", "(base * 2 + grown):sum():backward()")
  p:same("gradient('w.grad', w.grad)")
  p:same("gradient('g.grad', g.grad)")
  p:same("see('all', base, grown, other, w, g)")
  if overlap then p.python = false end
end

return {count = 40, generate = generate}
