"""Where a call on CUDA tensors overtakes PyTorch's attention: whole calls of both, by shape.

What vcattn's rule for short calls (python/vcattn/_short.py) is fitted to. Tensors are views of
(B, S, H, d) memory, as in diffusers. A row's "ms" are times per call of calls made one after the
other from Python, the host's part included; "device_ms" those of replayed CUDA graphs, where the
host has none:

  vcattn          with the order of the keys at hand: most steps of a schedule (self-attention)
  vcattn_group    a step that groups, warm-started (self-attention)
  vcattn_alone    a call without a state: it groups from scratch
  torch           what handing a call to PyTorch costs: vcattn.sdpa under the recipe "torch"
  torch_default   scaled_dot_product_attention itself
  torch_cudnn     the same, held to cuDNN

Writes one JSON object to standard output, a line per shape to standard error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import vcattn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

Call = Callable[[], object]


class Shape(NamedTuple):
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    dtype: str


def self_attention(
    heads: int, tokens: int, dim: int, dtype: str = "bfloat16", batch: int = 1
) -> Shape:
    return Shape(batch, heads, heads, tokens, tokens, dim, dtype)


def shapes() -> Iterator[Shape]:
    lengths = (256, 512, 1024, 1560, 2048, 3072, 4096, 5000, 6144, 8192, 12288)
    for heads, tokens in itertools.product((5, 12, 24, 40), lengths):
        yield self_attention(heads, tokens, 128)
    for tokens in (512, 1560, 3072, 4096, 6144):
        yield self_attention(24, tokens, 128, batch=2)
        yield Shape(1, 28, 4, tokens, tokens, 128, "bfloat16")
    for heads, tokens in itertools.product((12, 24), lengths):
        yield self_attention(heads, tokens, 64)
    for tokens in (1024, 3072, 4096, 6144, 8192):
        yield self_attention(16, tokens, 72)
        yield self_attention(24, tokens, 96)
    for heads, tokens in ((1, 4096), (1, 16384), (1, 32768), (2, 16384), (3, 9216)):
        yield self_attention(heads, tokens, 128)
    for heads, queries, keys in itertools.product(
        (12, 40), (1024, 4096, 16384, 75600), (77, 512, 1024, 2048, 4096)
    ):
        yield Shape(1, heads, heads, queries, keys, 128, "bfloat16")
    yield self_attention(28, 1024, 128, batch=8)
    yield self_attention(16, 12800, 64, batch=4)
    for queries, keys in itertools.product((1, 128, 1024), (4096, 32768)):
        yield Shape(1, 24, 24, queries, keys, 128, "bfloat16")
    for tokens in (2560, 3600, 7020, 10500):
        yield self_attention(30, tokens, 128)
        yield self_attention(20, tokens, 64)
    for queries in (7020, 32760):
        yield Shape(1, 24, 24, queries, 257, 128, "bfloat16")
    for tokens in (1024, 4096, 6144):
        yield self_attention(24, tokens, 128, "float16")
    for tokens in (256, 512, 1024, 2048, 4096):
        yield self_attention(24, tokens, 128, "float32")
    yield Shape(1, 24, 24, 16384, 512, 128, "float32")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.on_gpu = options.device == "cuda"

    def calls(self, shape: Shape) -> dict[str, Call]:
        batch, heads, kv_heads, queries, keys, dim, dtype = shape
        torch.manual_seed(0)
        q, k, v = (
            torch.randn(batch, tokens, count, dim, device=self.options.device)
            .to(getattr(torch, dtype))
            .transpose(1, 2)
            for tokens, count in ((queries, heads), (keys, kv_heads), (keys, kv_heads))
        )

        grouped = {"enable_gqa": heads != kv_heads}

        def vc(state: vcattn.VSmoothState | None = None, steps: tuple[int, ...] = (1,)) -> Call:
            upcoming = itertools.cycle(steps)

            def call() -> object:
                if state is not None:
                    state.begin_step(next(upcoming))
                return vcattn.attention(q, k, v, recipe="vc8", state=state)

            return call

        def handed_over() -> object:
            return vcattn.sdpa(q, k, v, recipe="torch", **grouped)

        def of_torch() -> object:
            return scaled_dot_product_attention(q, k, v, **grouped)

        def of_cudnn() -> object:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return of_torch()

        found = {"torch": handed_over, "torch_default": of_torch}
        if self.on_gpu and dtype != "float32":
            found["torch_cudnn"] = of_cudnn
        found["vcattn_alone"] = vc()
        if queries == keys:
            later = vcattn.VSmoothState(steps=40)
            vc(later, steps=(0,))()
            grouping = vcattn.VSmoothState(steps=40)
            found |= {"vcattn_group": vc(grouping, steps=(0, 4, 8)), "vcattn": vc(later)}
        return found

    def row(self, shape: Shape) -> dict[str, Any]:
        calls = self.calls(shape)
        row: dict[str, Any] = {**shape._asdict(), "ms": self.measure(calls)}
        if self.on_gpu:
            graphs = {name: captured(call) for name, call in calls.items()}
            row["device_ms"] = self.measure({name: g.replay for name, g in graphs.items()})
        return row

    def measure(self, calls: dict[str, Call]) -> dict[str, float]:
        """The least over interleaved blocks of calls, of about --block milliseconds each: what
        disturbs the host shows in some of them only."""
        counts = {name: self.warmed_up(call) for name, call in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(self.options.blocks):
            for name, call in calls.items():
                times[name].append(self.block(call, counts[name]))
        return {name: round(min(found), 5) for name, found in times.items()}

    def warmed_up(self, call: Call) -> int:
        """How many calls fill a block."""
        self.block(call, 2)
        return min(max(int(self.options.block / self.block(call, 2)), 2), 60)

    def block(self, call: Call, count: int) -> float:
        """Milliseconds per call."""
        self.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        self.synchronize()
        return (time.perf_counter() - begun) * 1e3 / count

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def captured(call: Call) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block", type=float, default=4.0, help="milliseconds of a block")
    parser.add_argument("--limit", type=float, default=80.0, help="seconds; no row starts later")
    parser.add_argument("--largest", type=int, default=1 << 20, help="leave out more queries")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    bench, rows, started = Bench(options), [], time.perf_counter()
    with torch.inference_mode():
        for shape in shapes():
            if shape.queries > options.largest:
                continue
            if time.perf_counter() - started > options.limit:
                print("the time is up", file=sys.stderr)
                break
            rows.append(bench.row(shape))
            times = "  ".join(f"{name} {ms:.3f}" for name, ms in rows[-1]["ms"].items())
            print("x".join(map(str, shape)), times, file=sys.stderr, flush=True)
    device = torch.cuda.get_device_name() if bench.on_gpu else "cpu"
    facts = {"device": device, "torch": torch.__version__, "recipe": "vc8", "rows": rows}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
