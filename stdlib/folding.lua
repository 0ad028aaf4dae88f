-- lines(guards): turns a list of guards into lines for people. Guards of the same kind whose sources have the same
-- shape share a line; a key in brackets may differ. Guards of values come first, then guards of a program's structure.
local M = {}

local NAMES = 4 -- sources named on a line
local TEXTS = 2 -- values named on a line

-- Turns opt.state[opt.param_groups[1].params[1]].exp_avg into opt.state[*].exp_avg.
local function shape_of(text) return (text:gsub("%b[]", "[*]")) end

-- Returns the part of a source before its last field or key, and the rest.
local function split(source)
  local head, tail = source:match("^(.+)(%.[%a_][%w_]*)$")
  if head then return head, tail end
  head, tail = source:match("^(.+)(%b[])$")
  if head then return head, tail end
  return "", source
end

-- Returns "opt.param_groups[1].lr, .eps, .betas[1]": further fields of an object are listed by their own names.
local function joined(sources)
  local out, last, shown = {}, nil, 0
  for _, source in ipairs(sources) do
    shown = shown + 1
    if shown > NAMES then
      out[#out + 1] = string.format("and %d more", #sources - NAMES)
      break
    end
    local head, tail = split(source)
    out[#out + 1] = head ~= "" and head == last and tail or source
    last = head
  end
  return table.concat(out, ", ")
end

local function add(list, seen, text)
  if seen[text] then return end
  seen[text] = true
  list[#list + 1] = text
end

-- Groups guards, in the order of their first ones. key(g) names the group, or is nil for none.
local function grouped(guards, key)
  local groups, by_key = {}, {}
  for _, g in ipairs(guards) do
    local k = key(g)
    local group = by_key[k]
    if not group then
      group = {kind = g.kind, n = 0, sources = {}, texts = {}, seen = {}, seen_texts = {}}
      by_key[k] = group
      groups[#groups + 1] = group
    end
    group.n = group.n + 1
    add(group.sources, group.seen, shape_of(g.source))
    add(group.texts, group.seen_texts, g.expected)
  end
  return groups
end

-- Guard kinds of a program's structure. Readers of a report seldom need them.
local of_structure = {type = true, identity = true, ["nil"] = true, metatable = true, prototype = true, keys = true}

local FLOAT_MAX = "3.4028234663852886e+38"

-- Returns a relation's shape, without the keys in brackets. The two relations that keep a number within float32's range
-- have one shape.
local function relation_shape(text)
  local inside = text:match("^(.*) >= %-" .. FLOAT_MAX:gsub("%p", "%%%0") .. "$")
    or text:match("^" .. FLOAT_MAX:gsub("%p", "%%%0") .. " >= (.*)$")
  if inside then return shape_of(inside) .. " is a float32" end
  return shape_of(text)
end

local function relation_lines(relations, out)
  local shapes, counts = {}, {}
  for _, g in ipairs(relations) do
    local shape = relation_shape(g.expected)
    if not counts[shape] then shapes[#shapes + 1] = {shape = shape, first = g.expected} end
    counts[shape] = (counts[shape] or 0) + 1
  end
  for _, s in ipairs(shapes) do
    local n = counts[s.shape]
    local text = s.shape:find " is a float32$" and s.shape or n == 1 and s.first or s.shape
    out[#out + 1] = "  relation: " .. text .. (n > 1 and string.format(" (%d)", n) or "")
  end
end

-- Groups sources by their first name: "opt (52), net (20)".
local function roots(guards)
  local order, counts = {}, {}
  for _, g in ipairs(guards) do
    local source = g.source:gsub("getmetatable%(", ""):gsub("^the environment", "_G")
    local root = source:match("^%a+ '([^']+)'") or source:match("^[%w_]+") or source
    if not counts[root] then order[#order + 1] = root end
    counts[root] = (counts[root] or 0) + 1
  end
  local out = {}
  for i, root in ipairs(order) do
    if i > 2 * NAMES then
      out[#out + 1] = string.format("and %d more", #order - 2 * NAMES)
      break
    end
    out[i] = string.format("%s (%d)", root, counts[root])
  end
  return table.concat(out, ", ")
end

local function value_text(group)
  if #group.texts <= TEXTS then return table.concat(group.texts, " or ") end
  return string.format("%s, %s ... (%d kinds)", group.texts[1], group.texts[2], #group.texts)
end

-- Sorts guards into the lists by which they are reported.
local function sorted_out(guards)
  local values, structure, relations, different = {}, {}, {}, {}
  for _, g in ipairs(guards) do
    if g.kind == "relation" then
      relations[#relations + 1] = g
    elseif g.kind == "alias" and g.expected:find "^not " then
      different[#different + 1] = g
    elseif of_structure[g.kind] or g.kind == "alias" and not g.expected:find "of its own" then
      structure[#structure + 1] = g
    else
      values[#values + 1] = g
    end
  end
  return values, structure, relations, different
end

local FEW = 6 -- up to so many guards of structure are listed one by one

function M.lines(guards)
  local out = {}
  local values, structure, relations, different = sorted_out(guards)
  if #structure <= FEW then
    for _, g in ipairs(structure) do values[#values + 1] = g end
    structure = {}
  end
  -- Groups sources of one shape, then groups that require the same value.
  local shapes = grouped(values, function(g) return g.kind .. " " .. shape_of(g.source) end)
  local by_text, lines = {}, {}
  for _, group in ipairs(shapes) do
    local key = group.kind .. ": " .. value_text(group)
    local line = by_text[key]
    if not line then
      line = {kind = group.kind, text = value_text(group), sources = {}, n = 0}
      by_text[key] = line
      lines[#lines + 1] = line
    end
    line.n = line.n + group.n
    for _, source in ipairs(group.sources) do line.sources[#line.sources + 1] = source end
  end
  for _, line in ipairs(lines) do
    local several = line.n > #line.sources and string.format(" (%d)", line.n) or ""
    local names = joined(line.sources)
    out[#out + 1] = string.format("  %s%s%s%s: %s", line.kind, names ~= "" and " " or "", names, several, line.text)
  end
  relation_lines(relations, out)
  if #different > 0 then
    local names = grouped(different, function(g) return shape_of(g.source) end)
    local sources = {}
    for i, group in ipairs(names) do sources[i] = group.sources[1] end
    out[#out + 1] = string.format("  alias %s (%d): each an object of its own", joined(sources), #different)
  end
  if #structure > 0 then
    out[#out + 1] = string.format("  and the same tables, functions and methods in %s", roots(structure))
  end
  return out
end

return M
