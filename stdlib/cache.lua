-- lutra cache list: lists the files that earlier runs left on the disk, with sizes. lutra cache clear: removes them.
local lt = ...

local function size_text(bytes)
  return bytes < 1e6 and string.format("%.1f kB", bytes / 1e3) or string.format("%.1f MB", bytes / 1e6)
end

local function age_text(seconds)
  if seconds < 60 then return "now" end
  if seconds < 3600 then return string.format("%d min", seconds / 60) end
  if seconds < 86400 then return string.format("%d h", seconds / 3600) end
  return string.format("%d days", seconds / 86400)
end

-- Returns, for a segment, what it was captured from; for a kernel, its compiler.
local function about_text(entry)
  if entry.about == "" then return "of another version" end
  return (entry.about:gsub("^segment ", ""))
end

local function list()
  local total, now = 0, os.time()
  for _, entry in ipairs(lt._native.kept()) do
    total = total + entry.bytes
    print(string.format("%-8s %10s %8s  %s", entry.kind, size_text(entry.bytes), age_text(now - entry.used),
      about_text(entry)))
  end
  local most = lt.config.cache_mb * 1e6
  print(string.format("%s of %s in %s", size_text(total), size_text(most), lt.config.cache_dir
    or "no folder: HOME is not set"))
end

return function(action)
  if action == "list" then return list() end
  local n = lt._native.clear_kept()
  print(string.format("%d %s removed", n, n == 1 and "file" or "files"))
end
