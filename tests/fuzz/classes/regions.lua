-- Data-dependent control flow: branches and loops with random bodies, nested, which read different outside values; with
-- and without gradients, under autocast, with breaks, dropout and writes among them; sizes change between the calls.
-- Sums of second derivatives may be rounded otherwise than in eager code, so they are compared with those of the plain
-- function, in float64.
local unary = {"tanh", "sigmoid", "sin", "square", "relu", "neg"}

-- Variables are of shape {3, 4}, but for those of a scan's body, of shape {4}.
local function generate(p)
  local region

  local function number() return tostring((p:random(9) - 5) / 4) end
  local function value(pool)
    local function any() return p:pick(pool) end
    return p:pick {
      function() return ("%s:%s()"):format(any(), p:pick(unary)) end,
      function() return ("%s %s %s"):format(any(), p:pick {"+", "*", "-"}, any()) end,
      function() return ("%s * %s"):format(any(), number()) end,
      function() return ("%s + %s"):format(any(), p:pick {"row", "s", number()}) end,
      function() return ("%s - %s:mean(-1, true)"):format(any(), any()) end,
      function() return ("%s:softmax(-1)"):format(any()) end,
      function() return ("%s:matmul(square) * 0.25"):format(any()) end,
      function() return ("lt.where(%s:gt(%s), %s, %s)"):format(any(), number(), any(), any()) end,
      function() return ("%s:clone()"):format(any()) end,
      function() return ("%s:flip({-1})"):format(any()) end,
    }()
  end

  -- Adds the statements of a body. Returns its pool of variables.
  local function body(given, depth, rank)
    local pool = {}
    for _, name in ipairs(given) do pool[#pool + 1] = name end
    for _ = 1, p:random(3) do
      if depth < 2 and rank == 2 and p:chance(20) then
        region(pool, depth + 1)
      elseif p:chance(3) then
        p:line(p:pick {"lt.graph_break()", "count[1] = count[1] + 1", "buf:add_(1)"})
      elseif p:chance(4) then
        local t = p:name "t"
        p:line("local %s = lt.nn.functional.dropout(%s, 0.5)", t, p:pick(pool))
        pool[#pool + 1] = t
      elseif p:chance(6) then
        local t = p:name "t"
        p:line("local %s = %s:clone(); %s:mul_(%s)", t, p:pick(pool), t, number())
        pool[#pool + 1] = t
      else
        local t = p:name "t"
        p:line("local %s = %s", t, value(pool))
        pool[#pool + 1] = t
      end
    end
    return pool
  end
  -- Adds a function of the carried values. It may also read variables around it.
  local function closure(head, arguments, around, depth, rank, results, tail)
    local given = {}
    for _, name in ipairs(arguments) do given[#given + 1] = name end
    if p:chance(50) and rank == 2 then given[#given + 1] = p:pick(around) end
    if rank == 1 and p:chance(50) then given[#given + 1] = "row" end
    p.keep(p:block(head, function()
      local pool = body(given, depth, rank)
      p.keep(p:line("return " .. results(pool)))
    end, tail))
  end

  local kinds = {
    cond = function(pool, depth, out)
      local a, b = p:name "a", p:name "b"
      local m, n = p:pick(pool), p:pick(pool)
      local predicate = p:pick {("%s:sum():gt(%s)"):format(p:pick(pool), number()), "s > 1", "i:gt(0)",
        ("%s[0][0]"):format(p:pick(pool)), "row:sum():lt(0)"}
      local function results(list) return p:pick(list) .. ", " .. value(list) end
      local second = p:name "t"
      p.keep(p:line("local %s, %s", out, second))
      closure(("%s, %s = lt.cond(%s, function(%s, %s)"):format(out, second, predicate, a, b), {a, b}, pool, depth, 2,
        results, "end, ")
      closure(("function(%s, %s)"):format(a, b), {a, b}, pool, depth, 2, results, ("end, %s, %s)"):format(m, n))
      pool[#pool + 1] = second
    end,
    ["while"] = function(pool, depth, out)
      local i, c = p:name "i", p:name "c"
      local limit = p:pick {("%s:lt(%s)"):format(i, p:pick {"n", "3", "0", "20", "i"}),
        ("lt.logical_and(%s:lt(5), %s:abs():sum():lt(40))"):format(i, c)}
      p.keep(p:line("local %s = lt.tensor(0)", "at" .. out))
      p.keep(p:line("local %s", out))
      closure(("at%s, %s = lt.while_loop(function(%s, %s) return %s end, function(%s, %s)"):format(out, out, i, c,
        limit, i, c), {c}, pool, depth, 2, function(list)
        return ("%s + 1, (%s) * 0.5"):format(i, value(list))
      end, ("end, %s, %s)"):format(p:pick {"lt.tensor(0)", "i * 0"}, p:pick(pool)))
    end,
    scan = function(pool, depth, out)
      local c, x, ys = p:name "c", p:name "x", p:name "ys"
      local options = p:pick {"", "", ", {reverse = true}"}
      p.keep(p:line("local last%s, %s", out, ys))
      closure(("last%s, %s = lt.scan(function(%s, %s)"):format(out, ys, c, x), {c, x}, pool, depth, 1, function(list)
        return ("(%s) * 0.5, %s"):format(value(list), p:pick {value(list), p:pick(list)})
      end, ("end, %s[1], %s%s)"):format(p:pick(pool), p:pick {"xs", "xs", p:pick(pool)}, options))
      p.keep(p:line("local %s = %s + last%s + %s:sum(0)", out, p:pick(pool), out, ys))
    end,
    -- A table is carried, slices are taken along the last dimension, and there may be no y.
    tables = function(pool, depth, out)
      local c, x, ys = p:name "c", p:name "x", p:name "ys"
      local gives = p:chance(70)
      p.keep(p:line("local last%s, %s", out, ys))
      closure(("last%s, %s = lt.scan(function(%s, %s)"):format(out, ys, c, x), {c .. ".h", c .. "[1]", x .. ".v"}, pool,
        depth, 1, function(list)
          return ("{%s * 0.5, h = (%s) * 0.5}, %s"):format(p:pick(list), value(list),
            gives and ("{%s}"):format(value(list)) or "nil")
        end, ("end, {row, h = %s[0]}, {v = xs:t()}, {dim = %s%s})"):format(p:pick(pool), p:pick {"1", "-1"},
          p:pick {"", ", reverse = true"}))
      p.keep(p:line("local %s = %s + last%s.h * last%s[1]%s", out, p:pick(pool), out, out,
        gives and (" + %s[1]:sum(0)"):format(ys) or ""))
    end,
    map = function(pool, depth, out)
      local x = p:name "x"
      p.keep(p:line("local %s", out))
      closure(("%s = lt.map(function(%s)"):format(out, x), {x}, pool, depth, 1, value, ("end, %s)"):format(p:pick(
        pool)))
    end,
    prefixes = function(pool, _, out)
      local a, b = p:name "a", p:name "b"
      local source = p:pick(pool)
      p:line("local %s = %s + lt.associative_scan(function(%s, %s) return %s end, %s, %s)['0:1']", out, p:pick(pool), a,
        b, p:pick {"%s + %s", "lt.maximum(%s, %s)", "%s * %s"}:format(a, b), p:pick {source, "xs"},
        p:pick {"0", "0, {reverse = true}"})
    end,
  }
  function region(pool, depth)
    local out = p:name "t"
    kinds[p:pick {"cond", "cond", "while", "while", "scan", "tables", "map", "prefixes"}](pool, depth, out)
    pool[#pool + 1] = out
  end

  p.keep(p:line("count, buf = {0}, lt.zeros(2)"))
  local inputs = {"p", "q"}
  p.keep(p:block("local function plain(p, q, row, square, xs, i, s, n)", function()
    local pool = {"p", "q"}
    local heads = {{"do", "end"}, {"do", "end"}, {"lt.autocast('cpu', {dtype = lt.bfloat16}, function()", "end)"},
      {"lt.no_grad(function()", "end)"}}
    for _ = 1, 1 + p:random(3) do
      if p:chance(30) then
        p:line("p = %s", value(pool))
      elseif p:chance(12) then
        local head = p:pick(heads)
        p:block(head[1], function()
          local inner = {"p", "q"}
          region(inner, 0)
          p:line("q = q + %s:float()", inner[#inner])
        end, head[2])
      else
        region(pool, 0)
        p:line("%s = %s", p:pick(inputs), pool[#pool])
      end
    end
    local out = {}
    for i = 1, 2 do out[i] = p:pick(pool) end
    p.keep(p:line("return %s", table.concat(out, ", ") .. ", p, q"))
  end))
  p.keep(p:line("local f = frame(plain)"))
  p.keep(p:block("local function second(f, steps, i, s, n, seed)", function()
    p.keep(p:line("local function leaf(k, ...) return data(seed + k, ...):mul(0.25):double():requires_grad_() end"))
    p.keep(p:line("local leaves = {leaf(1, 3, 4), leaf(2, 3, 4), leaf(3, 4), leaf(4, 4, 4), leaf(5, steps, 4)}"))
    p.keep(p:line("lt.manual_seed(seed)"))
    p.keep(p:line("local p, q, row, square, xs = unpack(leaves)"))
    p.keep(p:line("local a, b = f(p, q, row, square, xs, lt.tensor(i), s, n)"))
    p.keep(p:line("local total = p:sum() + row:sum()"))
    p.keep(p:line("for _, r in ipairs {a, b} do if r.requires_grad then total = total + r:sin():sum() end end"))
    p.keep(p:line("local out, first = {}, {lt.grad(total, leaves, {create_graph = true, allow_unused = true})}"))
    p.keep(p:line("local sum = p:sum()"))
    p.keep(p:line("for k = 1, 5 do if first[k] then sum = sum + (first[k] * 0.5):sin():sum() end end"))
    p.keep(p:line("for k, g in pairs {lt.grad(sum, leaves, {allow_unused = true})} do out[k] = g end"))
    p.keep(p:line("return out"))
  end))
  p.keep(p:block("local function twice(...)", function()
    p.keep(p:line("local ok, want = pcall(second, plain, ...)"))
    p.keep(p:line("local same, got = pcall(second, f, ...)"))
    p.keep(p:line("see('raises', ok, same)"))
    p.keep(p:line("if not ok or not same then return end"))
    p.keep(p:block("for k = 1, 5 do", function()
      p.keep(p:line("local a, b = got[k] or lt.zeros(1):double(), want[k] or lt.zeros(1):double()"))
      p.keep(p:line("local most = b:abs():max():item()"))
      p.keep(p:line("see('close', k, not (most < 1e6) or a:allclose(b, {rtol = 1e-6, atol = 1e-8 * (1 + most)}))"))
    end))
  end))
  p.keep(p:block("local function call(steps, i, s, n, grad, seed)", function()
    local dtype = p:chance(20) and p:pick {"float16", "bfloat16", "float64"} or "float32"
    p.keep(p:line("local function leaf(k, ...) return data(seed + k, ...):mul(0.5):to('%s'):requires_grad_(grad) end",
      dtype))
    p.keep(p:line("local p, q, row, square, xs = leaf(1, 3, 4), leaf(2, 3, 4), leaf(3, 4), leaf(4, 4, 4), "
      .. "leaf(5, steps, 4)"))
    p.keep(p:line("local ok, a, b, c, d = try('f', f, p, q, row, square, xs, lt.tensor(i), s, n)"))
    p:line("see('count', count[1], buf)")
    p.keep(p:line("if not ok then return end"))
    p.keep(p:line("local total"))
    p.keep(p:line("for _, r in ipairs {a, b, c, d} do "
      .. "if r.requires_grad then local v = (r * 0.5):sum(); total = total and total + v or v end end"))
    p.keep(p:line("if total then try('backward', total.backward, total) end"))
    p.keep(p:line(
      "gradient('p', p.grad); gradient('q', q.grad); gradient('row', row.grad); gradient('square', square.grad); "
      .. "gradient('xs', xs.grad)"))
  end))
  local function one()
    p:line("call(%d, %d, %s, %d, %s, %d)", p:pick {1, 3, 5, 18, 18, 24}, p:random(2) - 1, p:pick {"0.5", "1.5", "-2"},
      p:random(5), p:pick {"true", "false", "false"}, p:random(50))
  end
  for _ = 1, 3 + p:random(3) do one() end
  if p:chance(40) then
    p:line("twice(%d, %d, %s, %d, %d)", p:pick {3, 18, 24}, p:random(2) - 1, p:pick {"0.5", "-2"}, p:random(4),
      p:random(50))
  end
end

return {count = 40, generate = generate}
