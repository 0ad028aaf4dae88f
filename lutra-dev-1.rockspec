-- `luarocks --lua-version 5.1 make` in a checkout: builds Lutra and installs it as a rock, so that `require "lutra"` finds
-- it in LuaJIT 2.1. It needs the Debian packages of scripts/packages.txt.
rockspec_format = "3.0"
package = "lutra"
version = "dev-1"
source = {url = "file://."}
description = {
  summary = "A tensor language hosted in LuaJIT, with a compiler",
  detailed = "Tensors, autograd and neural networks for LuaJIT. Whole train steps are traced and compiled for the CPU"
    .. " or the GPU.",
}
supported_platforms = {"linux"}
dependencies = {"lua == 5.1"}
build = {
  type = "command",
  build_command = "scripts/build release",
  -- LuaRocks moves what lies in its folders one by one; so the whole installation has a folder of its own.
  install_command = "cmake --install build/release --prefix $(PREFIX)/installed && mkdir -p $(LIBDIR) $(BINDIR)"
    .. " && cp -L $(PREFIX)/installed/lib/lua/5.1/lutra.so $(LIBDIR) && cp $(PREFIX)/installed/bin/lutra $(BINDIR)",
}
