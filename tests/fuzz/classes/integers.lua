-- Integers that change from call to call and become sizes, indices, bounds of slices and loops, counts, positions in
-- lists, operands of integer arithmetic; some calls pass other values. In some programs they are elements that item()
-- reads from tensors.
local values = {"0", "1", "2", "3", "4", "5", "6", "7", "-1", "-2", "-3", "8"}
local odd = {"-0.0", "0.5", "nil", "'3'", "3LL", "2.5"}

-- Terms of v and w, whole numbers, and n, the size of x's first dimension.
local terms = {"v", "w", "v + 1", "v - 1", "v + w", "v - w", "v * 2", "v % 3", "v % n", "n - v", "n + v", "-v",
  "math.max(v, 2)", "math.min(v, n)", "math.max(v, w)", "math.min(v, w, 3)", "math.floor(v / 2)", "math.ceil(v / 2)",
  "math.abs(v)", "v * w", "v / 2", "(v + w) / 2", "n * v / 2", "#list - v", "v ^ 2", "math.floor(n / 2)", "v * 1",
  "bit.band(v, 3)", "bit.bor(v, w)", "bit.bxor(v, w)", "bit.lshift(v, 1)", "bit.arshift(v, 1)", "bit.bnot(v)",
  "bit.band(bit.rshift(v, w), 15)", "bit.band(bit.rol(v, w), 15)", "bit.tobit(v * w)", "bit.band(v, n, 7)",
  "math.fmod(v, math.max(w, 1))", "(math.modf(v / 2))", "math.random(3)", "math.random(0, 5)", "math.random(v)"}

local uses = {
  "x[%s]", "x[{%s, 1}]", "x[{1, %s}]", "x[{{%s, nil}}]", "x[{{nil, %s}}]", "x[{{%s, %s}}]", "x[{':', {%s, %s}}]",
  "x[{{nil, nil, %s}}]", "x:select(0, %s)", "x:select(1, %s)", "x:narrow(0, %s, 1)", "x:narrow(0, 0, %s)",
  "x:narrow(0, %s, %s)", "lt.zeros(%s)", "lt.ones(%s, 2)", "lt.full({2, %s}, 3)", "lt.arange(%s)",
  "lt.arange(%s, %s)", "lt.arange(0, %s, 2)", "lt.arange(%s, -3, -2)",
  "lt.zeros(%s) + lt.ones(%s)", "lt.ones(%s) * 2 + one", "one:expand(%s, 3)",
  "one:expand(2, %s)", "x:tile({%s, 1})", "flat:view(%s, -1)", "flat:view(%s, %s)", "flat:reshape(-1, %s):sum(0)",
  "x:topk(%s, 0)", "x:tril(%s)", "x:roll(%s)", "x:roll(%s, 0)", "flat:split(%s)[1]", "F.pad(x, {%s, 1})",
  "ids:repeat_interleave(%s)", "F.one_hot(ids, %s)", "lt.eye(%s)", "x:sum(%s)", "x:unsqueeze(%s)", "x * %s", "ids * %s",
  "ids + %s", "1 / lt.full({2}, %s)", "x:diagonal(%s)", "lt.linspace(0, 1, %s)", "lt.rand(%s).shape",
  "list[%s]", "tensors[%s] + 1", "tensors[%s]:sum() + list[1]", "nets[%s](x)",
  "x * list[%s] + list[%s]", "tensors[(%s) %% 5 + 1] * tensors[(%s) %% 4 + 1]", "rows[%s] and rows[%s].w",
  "x * rows[(%s) %% 3 + 1].w + #rows[(%s) %% 3 + 1]", "nets[(%s) %% 3 + 1](x)", "list[list[(%s) %% 4 + 1] - 4]",
  "'step ' .. %s", "tostring(%s)",
  "%s .. ' of ' .. %s", "('%%d|%%g'):format(%s, %s)", "words['w' .. %s]", "table.concat({%s, 'a', %s}, ',')",
  "('ab' .. %s .. 'c'):sub(2, %s)", "('x' .. %s) == 'x2'", "#('n' .. %s)", "'item ' .. x:sum():item() .. %s",
  "lt.full({2}, %s)", "lt.full({%s}, %s)", "lt.where(x:gt(1), %s, %s)", "string.format('%%d', %s)",
  "lt.tensor({%s, 1})", "lt.tensor {{%s, 1}, {2, %s}}",
  "lt.tensor({%s, 300}, {dtype = lt.int32})", "x:diagonal(%s):sum()",
  "flat:view(4, 6):diagonal {offset = %s, dim1 = 1, dim2 = 0}",
  "x:diag(%s)", "one[0]:diag_embed(%s)", "flat:unfold(0, %s, %s)", "flat:unfold(0, %s, 2):sum(1)",
  "lt.linspace(%s, %s, %s)", "lt.linspace(0, 1, %s, {dtype = lt.float64})", "lt.linspace(0, %s, 5, {dtype = lt.int32})",
  "lt.linspace(%s, 2, 4, {dtype = lt.float16})", "lt.hann_window(%s)", "lt.bartlett_window(%s, {periodic = false})",
  "lt.kaiser_window(%s) * 2", "lt.hamming_window(%s)", "lt.blackman_window(%s)", "math.pow(%s, 2)", "math.fmod(%s, 3)",
  "tonumber(%s)", "x:cumsum(0):select(0, %s)", "lt.cat({x, x}, 0)[%s]",
  "(x * 2):narrow(0, %s, 2):sum(1)", "x:transpose(0, 1):select(1, %s)",
  "x:chunk(%s)[2]", "lt.cat(flat:chunk(%s))", "flat:split(%s)[2]", "lt.cat(x:split(%s, 1), 1)", "x:tensor_split(%s)[1]",
  "(x * 2):norm(%s)", "lt.cdist(x, x + 1, {p = %s})", "F.normalize(x + 1, {p = %s})", "lt.arange(0, 1, 1 / %s)",
  "lt.arange(%s / 3, 4, 0.5)", "F.interpolate(x:view(1, 1, -1), {scale_factor = %s / 2 + 0.6})",
  "lt.einsum('ij,ij->i', x, x) * %s",
  "lt.nn.utils.rnn.pad_sequence({x, x:narrow(0, 0, %s)})",
}
local writes = {
  "y[%s] = 3", "y[%s] = one", "y[{{%s, %s}}] = 2", "y:select(0, %s):fill_(4)", "y:narrow(0, %s, 1):mul_(2)",
  "y[{%s, 1}] = 5", "y:narrow(0, 0, %s):add_(1)", "kept[%s] = x", "list[%s] = %s", "list[(%s) %% 4 + 1] = %s",
  "list[(%s) %% 4 + 1] = list[(%s) %% 4 + 1] + 1", "tensors[(%s) %% 5 + 1] = y[0] * 2 y = y + tensors[(%s) %% 5 + 1]",
  "rows[(%s) %% 3 + 1].w = %s y = y * rows[(%s) %% 3 + 1].w", "list[%s], list[2] = 7, 8 total = total + #list",
  "list[#list + 1] = %s y = y * list[%s]", "list[%s] = nil", "list[%s] = list[#list] total = total + list[1]",
  "kept[#kept + 1] = y", "total = total + %s", "math.randomseed(%s) total = total + math.random()",
  "for i = 1, %s do y = y * 1.5 + i end", "for i = 0, %s do if i < n then y = y + x[i] end end",
  "for i = %s, %s do y = y + i end", "if v == 2 then y = y - 1 end", "if %s < w then y = y * 2 end",
  "for i, t in ipairs(tensors) do if i == v then y = y + t end end",
}

-- Reads from t, a tensor of two whole numbers, and from y, a result.
local reads = {"v = (t + 0)[0]:item()", "v = (t * 1):max():item()", "w = (t + 0)[1]:item()", "v = t[1]:int():item()",
  "w = (t * 2):sum():item()", "v = math.floor(t:double():mean():item())", "v = (y * 0 + t[0]):max():item()",
  "v = y:view(-1):argmax():item()", "w = y[{':', 1}]:gt(0):sum():item()", "v = (t:float() / 2)[0]:item()",
  "v, w = unpack((t + 0):tolist())", "w = (t * 2):view(1, 2):totable()[1][2]", "v = (t:int() + 1):tolist()[2]",
  "v = math.max((t + 0)[0]:item(), w)", "lt.check(v > 1, 'few')", "lt.check_is_size(v)", "assert(v < 6, 'many')"}

local function fill(p, text)
  return (text:gsub("%%(.)", function(c)
    if c == "%" then return "%" end
    return "(" .. p:pick(terms) .. ")"
  end))
end

local function generate(p)
  p.keep(p:line("F = lt.nn.functional"))
  p.keep(p:line("words = {w1 = 1, w2 = 2, w3 = 'three'}"))
  p.keep(p:line("list, tensors, kept, total = {5, 6, 7, 8}, {}, {}, 0"))
  p.keep(p:line("for i = 1, 5 do tensors[i] = data(i, 3) end"))
  p.keep(p:line("rows = {{w = 2}, {w = data(6, 3), 1}, {w = data(5, 3), 2, 3}}"))
  p.keep(p:line("nets = {function(a) return a + 1 end, function(a) return a * 2 end, function(a) return a:sum() end}"))
  p.keep(p:line("one, flat, ids = data(9, 1, 1), data(8, 24), lt.arange(4)"))
  local told = p:chance(40)
  p.keep(p:block("f = frame(function(x, v, w, t)", function()
    p.keep(p:line("local y, n = x * 1, x.shape[1]"))
    if told then
      p.keep(p:line("%s", p:pick(reads)))
      for _ = 1, p:random(3) - 1 do p:line("%s", p:pick(reads)) end
    end
    for i = 1, p:random(3) do
      if p:chance(50) then
        p:line("%s", fill(p, p:pick(writes)))
      else
        p:line("local r%d = %s", i, fill(p, p:pick(uses)))
      end
    end
    p.keep(p:line("return y, %s", fill(p, p:pick(uses))))
  end, "end)"))
  local rows = 2 + p:random(5)
  for call = 1, 5 + p:random(8) do
    local function value() return p:chance(4) and p:pick(odd) or p:pick(values) end
    local size, v, w = p:chance(70) and rows or 1 + p:random(6), value(), value()
    local t = ""
    if told then
      local dtype = p:pick {"int64", "int64", "int32"}
      t = (", lt.tensor({%s, %s}, {dtype = '%s'})"):format(p:pick(values), p:pick(values), dtype)
    end
    p:line("try('f %d', f, data(%d, %d, 3), %s, %s%s)", call, call, size, v, w, t)
  end
  p:line("see('kept', kept, total, list, tensors, rows)")
end

return {count = 80, generate = generate}
