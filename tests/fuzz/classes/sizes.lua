-- Data-dependent sizes: x[mask], nonzero, masked_select, unique, bincount and lt.where(mask), then ops on their
-- results, sizes as numbers, writes through masks, gradients in the frame and outside of it. Calls pass other lengths,
-- and masks with no, one or all elements true.
local masks = {"%s:gt(0)", "%s:lt(s)", "%s:abs():gt(1)", "%s:ge(-100)", "%s:gt(100)", "(%s * 2):round():eq(1)"}
local unary = {"exp", "tanh", "abs", "square"}

local function generate(p)
  -- Vectors of the input's length, and those of lengths that elements decide.
  local whole, parts = {"x"}, {}
  local function vector() return p:pick(#parts > 0 and p:chance(60) and parts or whole) end
  local function mask(v) return p:pick(masks):format(v) end

  local function statement()
    local v, t, n = vector(), p:name "t", p:name "n"
    local choices = {
      function() p:line("%s = %s[%s]", t, v, mask(v)) return parts end,
      function() p:line("%s = %s:masked_select(%s)", t, v, mask(v)) return parts end,
      function() p:line("%s = %s[lt.where(%s)[1]] + 1", t, v, mask(v)) return parts end,
      function() p:line("%s = %s:nonzero():select(1, 0):double() * 0.5", t, mask(v)) return parts end,
      function() p:line("%s = lt.unique((%s * 2):detach():round()) + 0", t, v) return parts end,
      function()
        p:line("%s = lt.bincount((%s:detach() * 2):abs():clamp(0, 9):long()):double()", t, v)
        return parts
      end,
      function() p:line("%s = %s:%s() * s", t, v, p:pick(unary)) return {} end,
      function() p:line("%s = %s + %s:sum()", t, v, vector()) return {} end,
      function() p:line("%s = lt.cat {%s, %s}", t, v, vector()) return parts end,
      function() p:line("%s = %s:numel(); %s = %s / %s", n, v, t, v, n) return {} end,
      function() p:line("%s = lt.stack({%s, %s}, 1)[{':', 1}] - %s:mean()", t, v, v, v) return {} end,
      function()
        p:line("%s = (lt.zeros(%s.shape[1], 2, {dtype = 'float64'}) + %s:view(-1, 1)):sum(1)", t, v, v)
        return {}
      end,
      function() p:line("%s = %s:cumsum(0):flip(0)", t, v) return {} end,
      function() p:line("%s = %s * 1; %s[%s] = %s", t, v, t, mask(t), p:pick {"0", "s"}) return {} end,
      function()
        local m = p:name "m"
        p:line("%s = %s * 1; %s = %s; %s[%s] = %s[%s] * 2", t, v, m, mask(t), t, m, t, m)
        return {}
      end,
      function() p:line("%s = %s:sort(); %s = %s['1:']", t, v, t, t) return parts end,
      function() p:line("%s = lt.rand(%s:size(0)):double() + %s", t, v, v) return {} end,
      function()
        local test = p:pick {"> 0", "> 3", "== 1"}
        p:line("if %s.shape[1] %s then %s = %s * 2 else %s = -%s end", v, test, t, v, t, v)
        return {}
      end,
      function() p:line("%s = %s; for i = 1, 2 do %s = %s[%s] end", t, v, t, t, mask(t)) return parts end,
      function()
        local fact = p:pick {"> 1", ">= 3", "< 40", "<= 5", "~= 3", "% 2 == 0", "% 3 == 1", "== 4", "> 70",
          "> x.shape[1] / 2"}
        p:line(p:pick {"lt.check(%s.shape[1] %s)", "lt.check(%s:size(0) %s, 'a fact')",
          "lt.check(not (%s.shape[1] %s))"}, v, fact)
        p:line("if %s.shape[1] %s then %s = %s * 2 else %s = -%s end", v, p:pick {fact, fact, "> 2"}, t, v, t, v)
        return {}
      end,
      function()
        p:line("%s = %s.shape[1]; assert(%s %s, 'only ' .. %s)", n, v, n, p:pick {"> 1", "> 2", "< 6", "== 2"}, n)
        p:line("%s = %s[{{0, %s}}] * 0.5", t, v, p:pick {"2", "3", n})
        return parts
      end,
      function() p:line("kept[%s] = %s", p:pick {"1", "'a'"}, v) p:line("%s = %s", t, v) return {} end,
      function() p:line("w:add_(%s:detach():sum() * 0.125); %s = %s", v, t, v) return {} end,
    }
    local list = p:pick(choices)()
    local kind = list == parts and parts or whole
    for _, part in ipairs(parts) do kind = part == v and parts or kind end
    kind[#kind + 1] = t
  end

  p.keep(p:line("w, kept = data(9, 1, {dtype = 'float64'}), {}"))
  p.keep(p:line("c = data(8, 1, {dtype = 'float64', requires_grad = true})"))
  local history = p:chance(30)
  p.keep(p:block("f = frame(function(x, s)", function()
    if history then p:line("x = x * c") end
    p:line("x = x + 0.25")
    for _ = 1, 2 + p:random(5) do statement() end
    local number = p:pick {"0", vector() .. ":numel()"}
    p.keep(p:line("return %s, %s, %s", p:pick(whole), #parts > 0 and parts[#parts] or "x", number))
  end, "end)"))
  p.keep(p:block("g = frame(function(x, s)", function()
    p.keep(p:line("c.grad = nil"))
    p.keep(p:line("local y = x * c"))
    p.keep(p:line("local z = y[%s]", mask("y")))
    p:line("z = z:%s()", p:pick(unary))
    p.keep(p:line("local l = z:%s()", p:pick {"sum", "mean"}))
    p.keep(p:line("l:backward()"))
    if p:chance(50) then p:line("lt.no_grad(function() c:sub_(c.grad * 0.125) end)") end
    p.keep(p:line("return l:detach(), c.grad"))
  end, "end)"))
  for call = 1, 4 + p:random(3) do
    local x = ("data(%d, %s, {dtype = 'float64'})"):format(call, p:pick {"8", "9", "30", "1", "2", "0", "12"})
    if p:chance(20) then x = ("lt.full({%d}, %s, {dtype = 'float64'})"):format(p:random(9), p:pick {"2", "-3", "0"}) end
    p:line("try('f %d', f, %s, %s)", call, x, p:pick {"0.5", "0.5", "2"})
    if p:chance(40) then p:line("try('g %d', g, %s, 0.5)", call, x) end
    if history and p:chance(50) then
      p:line("try('outside %d', function() local y, z = f(%s, 0.5); (y:sum() + z:sum()):backward() end)", call, x)
      p:line("gradient('c', c.grad)")
    end
  end
  p.keep(p:line("see('kept', kept, w)"))
end

return {count = 12, generate = generate}
