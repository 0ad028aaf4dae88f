"""scaled_dot_product_attention: the kernel and the formula."""
import torch


def cases(case, error, t):
    # Gradients by the queries and keys cancel: PyTorch's own rounding may be farther off than the bound.
    def attention(name, q, k, v, rest="", **options):
        case("attention " + name, [q, k, v], f"F.scaled_dot_product_attention(a, b, c{rest})", exact=True, **options)

    attention("plain", t.g(2, 3, 5, 4), t.g(2, 3, 7, 4), t.g(2, 3, 7, 6))
    attention("causal", t.g(2, 2, 6, 4), t.g(2, 2, 6, 4), t.g(2, 2, 6, 4), ", is_causal=True")
    attention("causal, fewer keys", t.g(1, 2, 6, 4), t.g(1, 2, 3, 4), t.g(1, 2, 3, 4), ", is_causal=True")
    attention("causal, more keys", t.g(1, 2, 3, 4), t.g(1, 2, 6, 4), t.g(1, 2, 6, 4), ", is_causal=True")
    attention("scale", t.g(1, 2, 3, 4), t.g(1, 2, 6, 4), t.g(1, 2, 6, 4), ", scale=0.3")
    attention("three dims", t.g(3, 5, 4), t.g(3, 7, 4), t.g(3, 7, 6), variants=["strided", "float64"])
    attention("two dims", t.g(5, 4), t.g(7, 4), t.g(7, 6), variants=["strided", "float64"])
    attention("five dims", t.g(2, 1, 2, 5, 4), t.g(2, 1, 2, 7, 4), t.g(2, 1, 2, 7, 6), variants=["strided"])
    attention("many positions", t.g(1, 1, 40, 3), t.g(1, 1, 150, 3), t.g(1, 1, 150, 5), variants=[])
    attention("causal, many positions", t.g(1, 1, 70, 3), t.g(1, 1, 140, 3), t.g(1, 1, 140, 5), ", is_causal=True", variants=[])
    attention("wide heads", t.g(1, 1, 3, 70), t.g(1, 1, 5, 70), t.g(1, 1, 5, 65), variants=[])
    attention("one position", t.g(1, 1, 1, 4), t.g(1, 1, 1, 4), t.g(1, 1, 1, 4), variants=["float64"])
    attention("shared heads", t.g(2, 4, 5, 4), t.g(2, 2, 7, 4), t.g(2, 2, 7, 6), ", enable_gqa=True", variants=["strided", "float64"])
    attention("heads of one tensor", t.g(2, 5, 4), t.g(2, 5, 4), t.g(2, 5, 4), variants=[])

    seen = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]).bool()
    blind = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]).bool()

    def masked(name, mask, shape=(2, 2, 3, 4), **options):
        b, h, l, s = shape
        case("attention mask " + name, [t.g(b, h, l, 5), t.g(b, h, s, 5), t.g(b, h, s, 5), mask],
             "F.scaled_dot_product_attention(a, b, c, d)", **{"variants": ["float64"], "exact": True, **options})

    masked("bool", seen)
    masked("bool, a query that sees nothing", blind)
    masked("bool, of batch and head", t.mask(2, 2, 3, 4) | torch.tensor([True, False, False, False]))
    masked("float", t.f(3, 4), variants=[])
    masked("float, of heads", t.f(2, 1, 4), variants=[])
    masked("float with a gradient", t.g(3, 4), variants=[])
    masked("float of infinities", torch.zeros(3, 4).masked_fill(~seen, float("-inf")), variants=[])
    masked("bool, many positions", t.mask(40, 150) | (torch.arange(150) == 3), shape=(1, 1, 40, 150), variants=[])
    case("attention mask bool, one key a query", [t.g(2, 2, 3, 5), t.g(2, 2, 4, 5), t.g(2, 2, 4, 5, scale=30.0),
                                                  torch.tensor([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).bool()],
         "F.scaled_dot_product_attention(a, b, c, d)", variants=["float64"], exact=True)
    case("attention packed", [t.g(2, 5, 24)],
         "F.scaled_dot_product_attention(*a.view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4), is_causal=True)",
         "(function() local x = a:view(2, 5, 3, 2, 4):permute(2, 0, 3, 1, 4) "
         "return lt.nn.functional.scaled_dot_product_attention(x[0], x[1], x[2], {is_causal = true}) end)()", variants=[], exact=True)
    case("attention dropout of all", [t.g(1, 2, 3, 4), t.g(1, 2, 3, 4), t.g(1, 2, 3, 4)],
         "F.scaled_dot_product_attention(a, b, c, dropout_p=1.0)", variants=[])
    case("attention of no keys", [t.f(1, 2, 3, 4), t.f(1, 2, 0, 4), t.f(1, 2, 0, 4)], "F.scaled_dot_product_attention(a, b, c)", variants=[])
    case("attention of no queries", [t.f(1, 2, 0, 4), t.f(1, 2, 3, 4), t.f(1, 2, 3, 4)], "F.scaled_dot_product_attention(a, b, c)", variants=[])
    error("scaled_dot_product_attention features", [t.f(1, 2, 3, 4), t.f(1, 2, 3, 5), t.f(1, 2, 3, 5)], "F.scaled_dot_product_attention(a, b, c)")
    error("scaled_dot_product_attention dtypes", [t.f(1, 2, 3, 4), t.f(1, 2, 3, 4, dtype=torch.float64), t.f(1, 2, 3, 4)],
          "F.scaled_dot_product_attention(a, b, c)")
    error("scaled_dot_product_attention mask shape", [t.f(1, 1, 3, 4), t.f(1, 1, 3, 4), t.f(1, 1, 3, 4), t.f(2, 3)],
          "F.scaled_dot_product_attention(a, b, c, d)")
    error("scaled_dot_product_attention vector", [t.f(4), t.f(4), t.f(4)], "F.scaled_dot_product_attention(a, b, c)")
