"""Ulysses attention with 16 bits and with 8 bits of q, k and v on the wire, one process a GPU.

torchrun --nproc-per-node 2 ulysses_wire.py [--tokens 75600] [--heads 40] [--recipe vc8]
Rank 0 prints one JSON object: medians and spread of the whole call (exchange, attention, exchange
back) and of the exchange alone, and the distance of both outputs from each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
import vcattn
from vcattn.integrations import quantized_ulysses as ulysses


def milliseconds(call: Callable[[], object], runs: int) -> list[float]:
    """Times between events, after two warm-up calls."""
    for _ in range(2):
        call()
    pairs = []
    for _ in range(runs):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=75600)
    parser.add_argument("--heads", type=int, default=40)
    parser.add_argument("--recipe", default="vc8")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    dist.init_process_group("nccl")
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    shape = (1, options.tokens // ranks, options.heads, 128)
    q, k, v = (torch.randn(shape, device="cuda").bfloat16() for _ in range(3))

    def in_16_bits() -> torch.Tensor:
        heads = (ulysses._to_heads(x, ranks, group) for x in (q, k, v))
        out = vcattn.attention(*heads, layout="BSHD", recipe=options.recipe)
        return ulysses._to_tokens(out, ranks, group)

    def in_8_bits() -> torch.Tensor:
        return ulysses.attend(q, k, v, group, recipe=options.recipe)

    def exchange(x: torch.Tensor) -> Callable[[], object]:
        return lambda: ulysses._to_heads(x, ranks, group)

    wire = torch.zeros(*shape[:3], 3 * 132, dtype=torch.int8, device="cuda")
    rows = {
        "16 bits": in_16_bits,
        "8 bits": in_8_bits,
        "exchange, 16 bits": exchange(torch.cat([q, k, v], -1)),
        "exchange, 8 bits": exchange(wire),
    }
    times = {name: milliseconds(call, options.runs) for name, call in rows.items()}
    a, b = in_16_bits().float(), in_8_bits().float()
    if rank == 0:
        facts = {
            "ranks": ranks, "tokens": options.tokens, "heads": options.heads,
            "recipe": options.recipe, "device": torch.cuda.get_device_name(),
            "rel_l2_8_to_16_bits": float((a - b).norm() / a.norm()),
            "milliseconds": {
                name: {"median": statistics.median(t), "min": min(t), "max": max(t)}
                for name, t in times.items()
            },
        }  # fmt: skip
        print(json.dumps(facts, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
