"""Writes ../lua/module_references.lua: what PyTorch's modules and optimisers give in float64. `python modules.py`, with PyTorch 2.11.

A case has a name, the module in Python and in Lua, the inputs, and the call in both. Parameters and inputs are sines of their places, so that both
sides make the same ones; of each output the shape, three sums and some elements are kept, of each gradient the sums. tests/lua/modules.lua holds Lutra to them, eager and compiled.
"""
import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
NEG = float("-inf")


def wave(shape, phase):
    n = math.prod(shape)
    return torch.tensor([0.5 * math.sin(0.7 * i + phase) for i in range(n)]).reshape(shape)


def fill(module):
    with torch.no_grad():
        for k, (_, p) in enumerate(sorted(module.named_parameters(), key=lambda item: item[0])):
            p.copy_(wave(p.shape, 1 + k))


def lua(value):
    if isinstance(value, torch.Tensor):
        return lua(value.tolist())
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(lua(v) for v in value) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f'["{k}"] = {lua(v)}' for k, v in sorted(value.items())) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "-inf" if value == NEG else f"{value:.12g}"
    return '"' + value.replace('"', '\\"') + '"'


def flat(results):
    out = []
    for r in results if isinstance(results, (tuple, list)) else [results]:
        out += flat(r) if isinstance(r, (tuple, list)) else [r] if r is not None else []
    return out


def sums(t):
    t = t.reshape(-1)
    return [t.sum().item(), t.abs().sum().item(), (t * torch.arange(1.0, t.numel() + 1)).sum().item()]


F64 = 'dtype = "float64"'


def weights(*shape):
    return ("wave", shape)


CASES = []


def case(name, python, lua_text, inputs, call="m(a)", lua_call=None):
    CASES.append((name, python, lua_text, inputs, call, lua_call or call))


a3, h2 = weights(4, 2, 3), weights(2, 2, 5)
for mode in ("RNN", "GRU"):
    case(mode, f"nn.{mode}(3, 5)", f"nn.{mode}(3, 5, {{{F64}}})", [a3])
    case(mode + " with a state", f"nn.{mode}(3, 5, num_layers=2, bias=False)", f"nn.{mode}(3, 5, {{num_layers = 2, bias = false, {F64}}})",
         [a3, h2], "m(a, b)")
    case(mode + " both ways, batch first", f"nn.{mode}(3, 5, 2, batch_first=True, bidirectional=True)",
         f"nn.{mode}(3, 5, 2, {{batch_first = true, bidirectional = true, {F64}}})", [a3])
    case(mode + " unbatched", f"nn.{mode}(3, 5, bidirectional=True)", f"nn.{mode}(3, 5, {{bidirectional = true, {F64}}})",
         [weights(4, 3), weights(2, 5)], "m(a, b)")
case("RNN of relu", "nn.RNN(3, 5, nonlinearity='relu')", f'nn.RNN(3, 5, {{nonlinearity = "relu", {F64}}})', [a3])
case("LSTM", "nn.LSTM(3, 5)", f"nn.LSTM(3, 5, {{{F64}}})", [a3])
case("LSTM with a state", "nn.LSTM(3, 5, 2)", f"nn.LSTM(3, 5, 2, {{{F64}}})", [a3, h2, weights(2, 2, 5)], "m(a, (b, c))", "m(a, {b, c})")
case("LSTM both ways, projected", "nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, proj_size=2)",
     f"nn.LSTM(3, 5, 2, {{batch_first = true, bidirectional = true, proj_size = 2, {F64}}})", [a3])
case("LSTM unbatched", "nn.LSTM(3, 5)", f"nn.LSTM(3, 5, {{{F64}}})", [weights(4, 3), weights(1, 5), weights(1, 5)], "m(a, (b, c))", "m(a, {b, c})")
PACK, PAD_PACKED = "nn.utils.rnn.pack_padded_sequence", "nn.utils.rnn.pad_packed_sequence"
a4 = weights(4, 3, 3)
for name, python, inputs, given, lua_given in (
        ("RNN", "nn.RNN(3, 5, 2, bidirectional=True)", [a4], "", ""), ("GRU", "nn.GRU(3, 5, bidirectional=True)", [a4, weights(2, 3, 5)], ", b", ", b"),
        ("LSTM", "nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2)", [a4], "", ""),
        ("LSTM", "nn.LSTM(3, 5)", [a4, weights(1, 3, 5), weights(1, 3, 5)], ", (b, c)", ", {b, c}")):
    of_lua = python[:-1].replace("bidirectional=True", "{bidirectional = true").replace(", proj_size=2", ", proj_size = 2")
    of_lua += (f", {F64}}})" if "{" in of_lua else f", {{{F64}}})")
    for sort, lengths in (("True", "4, 3, 1"), ("False", "2, 4, 2")):
        case(f"{name}{given} of a packed sequence, enforce_sorted {sort}", python, of_lua, inputs,
             f"(lambda y, s: ({PAD_PACKED}(y, total_length=5)[0], s))(*m({PACK}(a, [{lengths}], enforce_sorted={sort}){given}))",
             f"(function(y, s) return {PAD_PACKED}(y, {{total_length = 5}}), s end)(m({PACK}(a, {{{lengths}}}, "
             f"{{enforce_sorted = {sort.lower()}}}){lua_given}))")
for mode in ("RNNCell", "GRUCell"):
    case(mode, f"nn.{mode}(3, 5)", f"nn.{mode}(3, 5, {{{F64}}})", [weights(2, 3), weights(2, 5)], "m(a, b)")
    case(mode + " unbatched, without bias", f"nn.{mode}(3, 5, bias=False)", f"nn.{mode}(3, 5, {{bias = false, {F64}}})", [weights(3)])
case("LSTMCell", "nn.LSTMCell(3, 5)", f"nn.LSTMCell(3, 5, {{{F64}}})", [weights(2, 3), weights(2, 5), weights(2, 5)], "m(a, (b, c))", "m(a, {b, c})")
case("LSTMCell unbatched", "nn.LSTMCell(3, 5)", f"nn.LSTMCell(3, 5, {{{F64}}})", [weights(3)])

LAYER = "8, 2, 12, dropout=0.0"
LUA_LAYER = f"8, 2, 12, 0, {{{F64}"
x, y = weights(5, 2, 8), weights(4, 2, 8)
PAD = [[False, False, False, True, True], [False, False, False, False, True]]
CAUSAL = [[0.0 if j <= i else NEG for j in range(5)] for i in range(5)]
for first in ("True", "False"):
    lf = f"norm_first = {first.lower()}"
    case(f"TransformerEncoderLayer, norm_first {first}", f"nn.TransformerEncoderLayer({LAYER}, norm_first={first})",
         f"nn.TransformerEncoderLayer({LUA_LAYER}, {lf}}})", [x, PAD], "m(a, src_key_padding_mask=b)", "m(a, {src_key_padding_mask = b})")
    case(f"TransformerDecoderLayer, norm_first {first}", f"nn.TransformerDecoderLayer({LAYER}, norm_first={first}, activation='gelu')",
         f'nn.TransformerDecoderLayer({LUA_LAYER}, {lf}, activation = "gelu"}})', [y, x, PAD],
         "m(a, b, memory_key_padding_mask=c)", "m(a, b, {memory_key_padding_mask = c})")
case("TransformerEncoder", f"nn.TransformerEncoder(nn.TransformerEncoderLayer({LAYER}, batch_first=True), 2, nn.LayerNorm(8))",
     f"nn.TransformerEncoder(nn.TransformerEncoderLayer({LUA_LAYER}, batch_first = true}}), 2, nn.LayerNorm(8, {{{F64}}}))",
     [weights(2, 5, 8), CAUSAL], "m(a, b)")
case("TransformerDecoder", f"nn.TransformerDecoder(nn.TransformerDecoderLayer({LAYER}), 2)",
     f"nn.TransformerDecoder(nn.TransformerDecoderLayer({LUA_LAYER}}}), 2)", [x, y, CAUSAL], "m(a, b, tgt_mask=c)", "m(a, b, {tgt_mask = c})")
case("Transformer", "nn.Transformer(8, 2, 1, 2, 12, 0.0, batch_first=True)", f"nn.Transformer(8, 2, 1, 2, 12, 0, {{batch_first = true, {F64}}})",
     [weights(2, 5, 8), weights(2, 5, 8), PAD],
     "m(a, b, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), src_key_padding_mask=c, memory_key_padding_mask=c, tgt_is_causal=True)",
     'm(a, b, {tgt_mask = nn.Transformer.generate_square_subsequent_mask(5, {dtype = "float64"}), src_key_padding_mask = c, '
     'memory_key_padding_mask = c, tgt_is_causal = true})')
case("MultiheadAttention by position", "nn.MultiheadAttention(8, 2)", f"nn.MultiheadAttention(8, 2, {{{F64}}})", [y, x, PAD],
     "m(a, b, b, c, True, None, False)", "m(a, b, b, c, true, nil, false)")

IDS, FLAT, OFFSETS = [[1, 2, 4], [4, 0, 0]], [1, 2, 4, 4, 0, 3], [0, 2, 2, 5]
for mode in ("sum", "mean", "max"):
    case(f"EmbeddingBag {mode}", f"nn.EmbeddingBag(6, 3, mode='{mode}')", f'nn.EmbeddingBag(6, 3, {{mode = "{mode}", {F64}}})', [IDS])
    case(f"EmbeddingBag {mode} by offsets, padding", f"nn.EmbeddingBag(6, 3, mode='{mode}', padding_idx=4)",
         f'nn.EmbeddingBag(6, 3, {{mode = "{mode}", padding_idx = 4, {F64}}})', [FLAT, OFFSETS], "m(a, b)")
case("EmbeddingBag weighted, last offset", "nn.EmbeddingBag(6, 3, mode='sum', include_last_offset=True)",
     f'nn.EmbeddingBag(6, 3, {{mode = "sum", include_last_offset = true, {F64}}})', [FLAT, [0, 2, 6], weights(6)], "m(a, b, c)")

for loss, target in (("MultiLabelMarginLoss", [[1, 2, -1], [0, -1, 1]]), ("MultiLabelSoftMarginLoss", [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])):
    of_lua = "b" if "Soft" in loss else "b:long()"
    case(loss, f"nn.{loss}(reduction='sum')", f'nn.{loss} {{reduction = "sum"}}', [weights(2, 3), target], "m(a, b)", f"m(a, {of_lua})")
case("LPPool1d", "nn.LPPool1d(4, 2)", "nn.LPPool1d(4, 2)", [weights(1, 2, 6)])
case("LPPool2d", "nn.LPPool2d(2, (2, 3), stride=1)", "nn.LPPool2d(2, {2, 3}, {stride = 1})", [weights(1, 2, 4, 6)])
case("MaxUnpool1d", "nn.MaxUnpool1d(2)", "nn.MaxUnpool1d(2)", [weights(1, 2, 3), [[[0, 2, 5], [1, 3, 4]]]], "m(a, b)", "m(a, b:long())")
case("MaxUnpool2d", "nn.MaxUnpool2d(2, stride=2)", "nn.MaxUnpool2d(2, {stride = 2})", [weights(1, 1, 2, 2), [[[[0, 3], [8, 15]]]]],
     "m(a, b, output_size=[4, 4])", "m(a, b:long(), {4, 4})")

for mode in ("reflect", "replicate", "circular"):
    case(f"Conv1d {mode}", f"nn.Conv1d(2, 3, 4, padding='same', padding_mode='{mode}')",
         f'nn.Conv1d(2, 3, 4, {{padding = "same", padding_mode = "{mode}", {F64}}})', [weights(1, 2, 6)])
    case(f"Conv2d {mode}", f"nn.Conv2d(2, 3, (3, 2), stride=2, padding=(2, 1), padding_mode='{mode}')",
         f'nn.Conv2d(2, 3, {{3, 2}}, {{stride = 2, padding = {{2, 1}}, padding_mode = "{mode}", {F64}}})', [weights(1, 2, 5, 6)])

for where in ("nn.utils", "nn.utils.parametrizations"):
    case(f"{where}.weight_norm", f"{where}.weight_norm(nn.Linear(4, 3))", f"{where}.weight_norm(nn.Linear(4, 3, {{{F64}}}))", [weights(2, 4)])
    case(f"{where}.weight_norm of a whole", f"{where}.weight_norm(nn.Conv1d(2, 3, 2), dim=None)",
         f"{where}.weight_norm(nn.Conv1d(2, 3, 2, {{{F64}}}), {{dim = false}})".replace("{dim = false}", '"weight", -1'), [weights(1, 2, 4)])
    case(f"{where}.weight_norm of another dim", f"{where}.weight_norm(nn.Conv1d(2, 3, 2), dim=1)",
         f"{where}.weight_norm(nn.Conv1d(2, 3, 2, {{{F64}}}), {{dim = 1}})", [weights(1, 2, 4)])
    case(f"{where}.spectral_norm", f"{where}.spectral_norm(nn.Linear(4, 3), n_power_iterations=3)",
         f"{where}.spectral_norm(nn.Linear(4, 3, {{{F64}}}), {{n_power_iterations = 3}})", [weights(2, 4)])
    case(f"{where}.spectral_norm of a transposed convolution", f"{where}.spectral_norm(nn.ConvTranspose1d(2, 3, 2))",
         f"{where}.spectral_norm(nn.ConvTranspose1d(2, 3, 2, {{{F64}}}))", [weights(1, 2, 4)])

OPTIMISERS = [
    ("SGD", "lr=0.1, foreach=True", "lr = 0.1, foreach = true"),
    ("Adam", "lr=0.1, weight_decay=0.2, decoupled_weight_decay=True", "lr = 0.1, weight_decay = 0.2, decoupled_weight_decay = true"),
    ("NAdam", "lr=0.1", "lr = 0.1"),
    ("NAdam", "lr=0.1, betas=(0.8, 0.99), weight_decay=0.2, momentum_decay=0.01, decoupled_weight_decay=True",
     "lr = 0.1, betas = {0.8, 0.99}, weight_decay = 0.2, momentum_decay = 0.01, decoupled_weight_decay = true"),
    ("NAdam", "lr=0.1, weight_decay=0.2, maximize=True", "lr = 0.1, weight_decay = 0.2, maximize = true"),
    ("RAdam", "lr=0.1", "lr = 0.1"),
    ("RAdam", "lr=0.1, betas=(0.8, 0.9), weight_decay=0.2", "lr = 0.1, betas = {0.8, 0.9}, weight_decay = 0.2"),
    ("RAdam", "lr=0.1, weight_decay=0.2, decoupled_weight_decay=True, maximize=True",
     "lr = 0.1, weight_decay = 0.2, decoupled_weight_decay = true, maximize = true"),
    ("Adamax", "lr=0.1", "lr = 0.1"),
    ("Adamax", "lr=0.1, betas=(0.8, 0.9), eps=0.01, weight_decay=0.2, maximize=True",
     "lr = 0.1, betas = {0.8, 0.9}, eps = 0.01, weight_decay = 0.2, maximize = true"),
    ("Adadelta", "", ""),
    ("Adadelta", "lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.2, maximize=True", "lr = 0.5, rho = 0.8, eps = 1e-3, weight_decay = 0.2, maximize = true"),
    ("Rprop", "lr=0.1", "lr = 0.1"),
    ("Rprop", "lr=0.1, etas=(0.3, 1.5), step_sizes=(0.01, 0.2), maximize=True", "lr = 0.1, etas = {0.3, 1.5}, step_sizes = {0.01, 0.2}, maximize = true"),
    ("ASGD", "lr=0.1", "lr = 0.1"),
    ("ASGD", "lr=0.02, lambd=0.01, alpha=0.6, t0=2, weight_decay=0.2, maximize=True",
     "lr = 0.02, lambd = 0.01, alpha = 0.6, t0 = 2, weight_decay = 0.2, maximize = true"),
    ("LBFGS", "lr=0.5, max_iter=3", "lr = 0.5, max_iter = 3"),
    ("LBFGS", "max_iter=4, history_size=2, line_search_fn='strong_wolfe'", 'max_iter = 4, history_size = 2, line_search_fn = "strong_wolfe"'),
]


def descend(name, options, steps=8):
    p = torch.tensor([0.5, -1.25, 2.0, 0.75], requires_grad=True)
    opt = eval(f"torch.optim.{name}([p], {options})")

    def closure():
        opt.zero_grad()
        loss = (p ** 4 / 4 - p ** 2).sum() + p.prod()
        loss.backward()
        return loss

    out = []
    for _ in range(steps):
        if name == "LBFGS":
            opt.step(closure)
        else:
            closure()
            opt.step()
        out.append(p.detach().tolist())
    return out


def run(python, inputs, call):
    torch.manual_seed(0)
    module = eval(python)
    fill(module)
    for name, b in module.named_buffers():
        b.copy_(F.normalize(wave(b.shape, 3 if name.endswith("u") else 4), dim=0))
    given = {}
    for letter, value in zip("abcdef", inputs):
        if isinstance(value, tuple):
            t = wave(value[1], ord(letter) - ord("a")).requires_grad_()
        else:
            t = torch.tensor(value)
        given[letter] = t
    results = flat(eval(call, {"m": module, "nn": nn, **given}))
    loss = sum((r * torch.cos(torch.arange(float(r.numel()))).reshape(r.shape)).sum() for r in results)
    loss.backward()
    grads = {n: sums(p.grad) for n, p in module.named_parameters() if p.grad is not None}
    grads.update({n: sums(t.grad) for n, t in given.items() if t.grad is not None})
    state = {n: list(v.shape) for n, v in module.state_dict().items()}
    outputs = [[list(r.shape), sums(r.detach()), r.detach().reshape(-1)[:6]] for r in results]
    return {"outputs": outputs, "grads": grads, "state": state}


lines = ["-- What PyTorch's modules and optimisers give: written by tests/oracle/modules.py.", "local inf = math.huge", "return {", "  modules = {"]
for name, python, lua_text, inputs, call, lua_call in CASES:
    result = run(python, inputs, call)
    shapes = [{"wave": list(v[1])} if isinstance(v, tuple) else {"values": v} for v in inputs]
    lines.append(f"    {{name = {lua(name)}, make = {lua(lua_text)}, call = {lua(lua_call)}, inputs = {lua(shapes)},")
    lines.append(f"     state = {lua(result['state'])},")
    lines.append(f"     outputs = {lua(result['outputs'])},")
    lines.append(f"     grads = {lua(result['grads'])}}},")
lines += ["  },", "  optimisers = {"]
for name, options, lua_options in OPTIMISERS:
    lines.append(f"    {{{lua(name)}, {lua(lua_options)}, {lua(descend(name, options))}}},")
lines += ["  },", "}"]
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "lua", "module_references.lua"), "w") as f:
    f.write("\n".join(lines) + "\n")
