"""Low-bit attention without PyTorch: how close recipes come to exact attention."""

import numpy as np
import vcattn


def main() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 4, 512, 128), dtype=np.float32) for _ in range(3))
    exact = vcattn.attention(q, k, v, recipe="exact")
    print(vcattn.explain(q, k, v, recipe="vc8"), end="\n\n")
    for recipe in ("sage2", "vc8", "sage3", "vc4"):
        out, lse = vcattn.attention(q, k, v, recipe=recipe, return_lse=True)
        error = np.linalg.norm(out - exact) / np.linalg.norm(exact)
        assert np.isfinite(out).all() and lse.shape == (1, 4, 512)
        print(f"{recipe:6} relative error {error:.4f}")


if __name__ == "__main__":
    main()
