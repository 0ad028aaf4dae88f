-- Errors without breaks: of the program, of ops and of the standard library. One compiled function raises them in some
-- calls and not in others, in callees, in loops and beside closures. Under fullgraph each is eager's.
local function number(p) return p:random(6) - 1 end

local statements = {
  function(p) p:line("y = y * %d", p:random(3)) end,
  function(p) p:line("y = (y * 0.5):tanh() + n") end,
  function(p) p:line("checked(n, %d)", number(p)) end,
  function(p) p:line("nested(n, %d)", number(p)) end,
  function(p) p:line("library(n, %d)", number(p)) end,
  function(p) p:line("y = viewed(y, n, %d)", number(p)) end,
  function(p) p:line("if n == %d then error('own') end", number(p)) end,
  function(p) p:line("if n == %d then error({code = n}) end", number(p)) end,
  function(p) p:line("assert(n ~= %d, 'asserted')", number(p)) end,
  function(p) p:line("lt.check(n ~= %d, function() return 'stated ' .. n end)", number(p)) end,
  function(p) p:line("lt.check_is_size(n, {max = %d})", 2 + number(p)) end,
  function(p) p:line("if n > %d then y = y + 1 else y = y - 1 end", number(p)) end,
  function(p) p:line("y = y + options.nested.scale") end,
  function(p) p:line("y = y + y[{0, {0, n}}]:sum()") end,
  function(p) p:line("y = y + y[n]:sum()") end,
  -- Write and read parts of a tensor before ops fail because of values.
  function(p) p:line("cache[%d] = y:sum(0)", number(p)) end,
  function(p) p:line("cache['1:3']:copy_(y['0:2'] * n)") end,
  function(p) p:line("cache:select(1, %d):%s", number(p), p:pick {"add_(1)", "zero_()", "copy_(y[0])"}) end,
  function(p) p:line("cache:index_%s_(0, zero + %d, y['0:1'])", p:pick {"copy", "add"}, number(p)) end,
  function(p)  -- writes, behind an op that may fail, a value that was made before it
    p:line("made = %s", p:pick {"cache:index_copy(0, zero + 2, y['1:2'])", "cache:index_add(0, zero + 2, y['1:2'])",
      "lt.slice_scatter(cache, y['0:1'], 0, 1, 2)", "cache:scatter(0, zero:view(1, 1) + 3, 0.5)"})
    if p:chance(50) then p:line("y = y + eye[zero + (n + %d)]", number(p)) end
    p:line("cache:copy_(made)")
  end,
  function(p) p:line("y = y + cache%s", p:pick {"", ":sum(0)", "[2]"}) end,
  function(p) p:line("y = y + eye:index_select(0, zero + (n + %d))", number(p)) end,
  function(p) p:line("y = y:matmul(eye) + eye[zero + (n + %d)]", number(p)) end,
  function(p) p:line("list[#list + 1] = n") end,
  function(p) p:line("last = function() return n end") end,
  function(p) p:line("if last then y = y + last() end") end,
  function(p) p:line("do local k = n; local more = function() k = k + 1; return k end; more(); y = y * k end") end,
  function(p)
    p:block("for i = 1, n do", function()
      p:line("y = y + i")
      p:line("%s(i, %d)", p:pick {"checked", "nested", "library"}, number(p))
    end)
  end,
}

local function generate(p)
  p.keep(p:line("list, scale, options = {}, 1, {nested = {scale = 2}}"))
  p.keep(p:line("cache, eye, zero = data(99, 6, 6), lt.eye(6), lt.tensor({0}, {dtype = 'int64'})"))
  p.keep(p:block("do", function()
    p.keep(p:line("local scale = 2"))
    p.keep(p:line("checked = function(n, e) local s = n * scale; if n == e then error('no ' .. n) end; return s end"))
  end))
  p.keep(p:line("nested = function(n, e) local r = checked(n, e); return r + 1 end"))
  p.keep(p:line("library = function(n, e) if n == e then lt.nn.utils.clip_grad_norm_(n, 1) end; return n end"))
  p.keep(p:line("viewed = function(t, n, e) if n == e then return t:view(7) end; return t + n end"))
  p.keep(p:block("f = frame(function(y, n)", function()
    p.keep(p:line("local last"))
    for _ = 1, 2 + p:random(5) do p:pick(statements)(p) end
    p.keep(p:line("return y, n"))
  end, "end)"))
  local halt = 4 + p:random(6)
  for i = 1, 12 do
    if i == halt then p:line("options.nested = nil") end
    p:line("try('f %d', f, data(%d, 6, 6), %d)", i, i, number(p))
  end
  p:line("see('state', #list, cache)")
end

return {count = 100, modes = "eager,compiled,dynamic,patched,auto,capture,whole,whole dynamic", generate = generate}
