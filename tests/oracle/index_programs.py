"""Random indexing programs and what PyTorch makes of them, as a Lua chunk for index_programs.lua.

    index_programs.py SEED COUNT FILE

A program reads or assigns x[...] by integers, slices, newaxis, an ellipsis, index tensors and masks in any mixture; x is
contiguous or not; gradients of x and of the assigned value follow. All numbers are small integers, so that answers are exact.
"""
import random
import sys

import torch


def flat(t):
    t = t.detach().reshape(-1)
    return ",".join("1" if v is True else "0" if v is False else "%.9g" % v for v in t.tolist())


def described(t):
    return f"{str(t.dtype)[6:]}[{','.join(map(str, t.shape))}] {flat(t)}"


class Program:
    def __init__(self, rng):
        self.rng = rng

    def tensor(self):
        """x and the Lua that makes it: an arange, perhaps transposed or sliced."""
        r = self.rng
        shape = [r.choice([0, 1, 2, 3, 4, 5]) if r.random() < 0.05 else r.choice([1, 2, 3, 4, 5]) for _ in range(r.randint(1, 4))]
        n = 1
        for s in shape:
            n *= s
        self.dtype = r.choice(["float32"] * 4 + ["float64", "int64", "int32", "uint8"])
        x = torch.arange(n).remainder(97).reshape(shape).to(getattr(torch, self.dtype))
        lua = f"(lt.arange({n}) % 97):view({{{','.join(map(str, shape))}}}):to('{self.dtype}')" if n else f"lt.zeros({{{','.join(map(str, shape))}}}, {{dtype='{self.dtype}'}})"
        form = r.random()
        if form < 0.15 and len(shape) > 1:
            x, lua = x.transpose(0, -1), lua + ":transpose(0, -1)"
        elif form < 0.25 and shape[-1] > 1:
            x, lua = x[..., ::2], lua + "['..., ::2']"
        return x, lua

    def positions(self, size, shape):
        r = self.rng
        n = 1
        for s in shape:
            n *= s
        wrong = r.random() < 0.01
        values = [r.randint(-size - wrong, size - 1 + wrong) if size or wrong else 0 for _ in range(n)]
        dtype = r.choice(["int64", "int64", "int32"])
        t = torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape)
        self.extra.append((t, f"lt.tensor({{{','.join(map(str, values))}}}, {{dtype='{dtype}'}}):view({{{','.join(map(str, shape))}}})" if shape and n
                           else f"lt.tensor({values[0]}, {{dtype='{dtype}'}})" if n else f"lt.zeros({{{','.join(map(str, shape))}}}, {{dtype='{dtype}'}})"))
        return t, f"a[{len(self.extra)}]"

    def mask(self, shape):
        r = self.rng
        shape = list(shape)
        if r.random() < 0.02 and shape:
            shape[0] += 1
        n = 1
        for s in shape:
            n *= s
        values = [r.random() < 0.5 for _ in range(n)]
        t = torch.tensor(values, dtype=torch.bool).reshape(shape)
        lua = f"lt.tensor({{{','.join(str(v).lower() for v in values)}}}):view({{{','.join(map(str, shape))}}})" if n else f"lt.zeros({{{','.join(map(str, shape))}}}, {{dtype='bool'}})"
        if not shape:
            lua = f"lt.tensor({str(values[0]).lower()})"
        self.extra.append((t, lua))
        return t, f"a[{len(self.extra)}]"

    def index(self, x):
        r = self.rng
        self.extra = []
        items, lua = [], []
        dim, rank = 0, x.dim()
        shared = [r.choice([1, 2, 3]) for _ in range(r.choice([1, 1, 1, 2, 0]))]
        ellipsis = False
        while dim < rank:
            kind = r.random()
            size = x.shape[dim]
            if kind < 0.18:
                at = r.randint(-size, size - 1) if size else 0
                if r.random() < 0.01:
                    at = size + 1
                items.append(at), lua.append(str(at))
                dim += 1
            elif kind < 0.42:
                ends = [None if r.random() < 0.4 else r.randint(-size - 1, size + 1) for _ in range(2)]
                step = r.choice([None, None, 1, 2, 3])
                items.append(slice(ends[0], ends[1], step))
                words = ["nil" if v is None else str(v) for v in ends + [step]]
                text = ":".join("" if v is None else str(v) for v in ends + [step])
                lua.append("{" + ", ".join(words) + "}" if r.random() < 0.5 else f"'{text}'")
                dim += 1
            elif kind < 0.5:
                items.append(None), lua.append("lt.newaxis")
            elif kind < 0.56 and not ellipsis:
                ellipsis = True
                items.append(Ellipsis), lua.append("lt.ellipsis")
                dim += r.randint(0, rank - dim)
            elif kind < 0.84:
                shape = [s if r.random() < 0.8 else 1 for s in shared[r.randint(0, len(shared)):]] if r.random() < 0.3 else shared
                t, name = self.positions(size, list(shape))
                items.append(t), lua.append(name)
                dim += 1
            elif kind < 0.95:
                k = r.randint(1, min(2, rank - dim))
                t, name = self.mask(x.shape[dim:dim + k])
                items.append(t), lua.append(name)
                dim += k
            elif kind < 0.97:
                t, name = self.mask([])
                items.append(t), lua.append(name)
            else:
                break
        if not items:
            items, lua = [Ellipsis], ["lt.ellipsis"]
        return tuple(items), lua

    def value(self, target):
        """A value that broadcasts to target's shape, once in a while not."""
        r = self.rng
        shape = list(target.shape)
        shape = shape[r.randint(0, len(shape)):] if r.random() < 0.4 else shape
        shape = [1 if r.random() < 0.2 else s for s in shape]
        if r.random() < 0.1:
            shape = [1] + shape
        if r.random() < 0.02:
            shape = [2] + shape
        n = 1
        for s in shape:
            n *= s
        t = (torch.arange(n) % 29 + 100).reshape(shape).to(target.dtype)
        text = f"{{{','.join(map(str, shape))}}}"
        if not n:
            return t, f"lt.zeros({text}, {{dtype='{self.dtype}'}})"
        if not shape:
            return t, f"lt.tensor(100, {{dtype='{self.dtype}'}})"
        return t, f"(lt.arange({n}) % 29 + 100):view({text}):to('{self.dtype}')"

    def write(self, out, name):
        r = self.rng
        x, x_lua = self.tensor()
        index, lua = self.index(x)
        key = "{" + ", ".join(lua) + "}"
        if len(lua) == 1 and lua[0].startswith("a[") and r.random() < 0.7:
            key = lua[0]
        with_grad = x.is_floating_point()
        kind = r.random()
        v, v_lua, mode, wanted = None, "nil", "read", []
        try:
            target = x[index]
            places = torch.arange(x.numel()).reshape(x.shape)[index].reshape(-1)
            collide = len(set(places.tolist())) < places.numel()
        except (IndexError, RuntimeError):
            target = None
        if kind > 0.45 and target is not None:
            tensors = [i for i in index if isinstance(i, torch.Tensor)]
            every = all(i.dtype in (torch.int64, torch.int32) for i in tensors)
            whole = len(tensors) == len(index) and every
            if kind > 0.85 and whole and tensors:
                mode = "accumulate"
                v, v_lua = self.value(target)
            elif kind > 0.7 and not collide:
                mode = "assign"
                v, v_lua = self.value(target)
            else:
                mode, v_lua = "number", str(r.choice([7, 0, 3]))
        try:
            leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(with_grad)
            given = v.clone().requires_grad_(with_grad) if v is not None else None
            y = leaf * 1
            if mode == "read":
                result = y[index]
            else:
                if mode == "number":
                    y[index] = int(v_lua)
                elif mode == "assign":
                    y[index] = given
                else:
                    y.index_put_(index, given, accumulate=True)
                result = y
            wanted.append(described(result))
            if with_grad and result.requires_grad:
                seed = (torch.arange(result.numel()) % 7 + 1).reshape(result.shape).to(result.dtype)
                result.backward(seed)
                wanted.append(described(leaf.grad))
                wanted.append(described(given.grad) if given is not None and given.grad is not None else "none")
            expected = '"' + " | ".join(wanted) + '"'
        except (IndexError, RuntimeError, ValueError) as error:
            expected = "nil"
        made = ", ".join(lua_of for _, lua_of in self.extra)
        flags = "true" if with_grad else "false"
        out.write(f'p("{name}", "{mode}", {flags}, function(lt) return {x_lua}, {v_lua}, {{{made}}} end,\n'
                  f'  function(lt, x, v, a) ')
        if mode == "read":
            out.write(f"return x[{key}] end, ")
        elif mode == "accumulate":
            out.write(f"x:index_put_({{{', '.join(lua)}}}, v, true) return x end, ")
        else:
            out.write(f"x[{key}] = v return x end, ")
        out.write(expected + ")\n")


def main():
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with open(path, "w") as out:
        out.write("local p = ...\n")
        for i in range(count):
            Program(random.Random(seed * 1000003 + i)).write(out, f"{seed}.{i}")


main()
