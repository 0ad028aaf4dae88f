-- Operations that fail because of the values of their elements or because of their shapes. Most of their results are
-- unused. Earlier calls compiled them with arguments that they accept. The effects before the failure are observed,
-- those after it are not.
local failing = {
  "t[ids]", "t:index_select(0, ids)", "t:gather(0, ids:view(-1, 1))", "lt.nn.functional.embedding(ids, t)", "n % d",
    "n:remainder(d)",
  "n:fmod(d)", "lt.nn.functional.cross_entropy(logits, ids)", "lt.nn.functional.nll_loss(logits, ids)",
    "lt.nn.functional.one_hot(ids, 4)",
  "lt.zeros(4, 2):scatter(0, ids:view(-1, 1), 1)", "lt.zeros(4):index_add(0, ids, x)",
    "lt.zeros(4):scatter_add(0, ids, x)", "t:take(ids)",
  "lt.zeros(4):index_fill(0, ids, 2)", "lt.zeros(4):index_put({ids}, x)", "x:view(k, -1)", "x:reshape({k, 2})",
    "x:expand({k, 4})", "t[k]",
  "x:narrow(0, 1, k)", "lt.cat({x, lt.ones(k, 2)})", "x:matmul(lt.ones(k))", "x + lt.ones(k)", "x:softmax(k - 4)",
    "x:sum(k - 4)",
  "n:floor_divide(d)", "lt.eye(4):index_select(1, ids)", "x:chunk(k - 3)", "t:select(0, k)", "x:unsqueeze(k - 3)",
    "t:repeat_interleave(d)",
  "lt.arange(0, k, k - 4)", "x:to('int64'):bincount()", "lt.full({k - 5}, 1)", "x:split(k - 5)", "x:cumsum(k - 4)",
    "x:topk(k)", "x:kthvalue(k)",
  "lt.randint(0, k - 4, {2})", "x:item()", "x[k]:item()",
}
local in_place = {"y:index_add_(0, ids, x)", "y:scatter_(0, ids, 1)", "y[ids] = 1", "y:view(2, 2):add_(lt.ones(k))",
  "y:copy_(lt.ones(k))",
  "m:add_(m:t())", "m:copy_(m:t())", "y['1:']:add_(y[':-1'])", "y:add_(lt.ones(4):gt(0))", "n:add_(x)", "n:div_(2)",
  "y:index_fill_(0, ids, 3)", "y:masked_fill_(ids:gt(1), k)", "n:remainder_(d)", "y:expand({2, 4}):add_(1)",
  "y:index_copy_(0, ids, x)", "m:index_copy_(0, ids, logits)", "m[1] = x"}

local function generate(p)
  p.keep(p:both("log = {}", "log = []"))
  p.keep(p:same("y, m = lt.zeros(4), lt.ones(4, 4)"))
  if p:chance(30) then p:same("y:requires_grad_(true)") end
  p:frame("f", "x, t, ids, n, d, logits, k", function()
    p.keep(p:same("local r = x * 2"))
    for _ = 1, 2 + p:random(4) do
      p:pick {
        function()
          local op = p:pick(failing)
          p:same(p:pick {"local unused = %s", "local unused = %s", "r = r + (%s):sum()", "local unused = (%s) * 2"}, op)
        end,
        function() p:same("local unused = %s", p:pick(failing)) end,
        function() p:same(p:pick(in_place)) end,
        function() p:both("log[#log + 1] = k", "log.append(k)") end,
        function() p:same("y = y + 1") end,
        function() p:same("m:mul_(2)") end,
        function() p:same("r = r * 1.5") end,
        function() p:both("lt.graph_break()", "") end,
      }()
    end
    p.keep(p:same("return r, y"))
  end).python = "def f(x, t, ids, n, d, logits, k):\n    global y"
  for call = 1, 3 + p:random(3) do
    local bad = p:chance(40)
    local ids = bad and p:pick {"{0, 1, 4, 2}", "{0, -5, 1, 2}", "{9, 1, 1, 1}"}
      or p:pick {"{0, 1, 2, 3}", "{3, 3, 0, 1}"}
    local d = p:chance(20) and "{1, 0, 2, 3}" or "{1, -2, 3, 2}"
    local k = p:chance(30) and p:pick {3, 5, 6, -1, 9} or p:pick {4, 4, 2}
    local arguments = ("data(%d, 4), data(%d, 4), lt.tensor(%s, {dtype = 'int64'}), lt.arange(4), lt.tensor(%s, {dtype = 'int64'}), data(%d, 4, 4), %d")
      :format(p:random(99), p:random(99), ids, d, p:random(99), k)
    p:both(("try('f %d', f, %s)"):format(call, arguments),
      ("attempt('f %d', f, %s)"):format(call, require("python").statement(arguments)))
    p:same("see('y', y)")
    p:same("see('m', m)")
    p:both("see('log', #log)", "see('log', len(log))")
  end
end

return {count = 60, generate = generate}
