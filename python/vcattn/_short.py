"""Dense calls on CUDA tensors that PyTorch's attention computes sooner: estimates of both.

Fitted to whole calls on an H200, bench/results/h200-crossover-device.json, made by
bench/python/crossover_device.py; tests/python/test_short.py holds the choice to them. The time of
either attention kernel goes with the number of key tiles that the busiest multiprocessor meets:
it takes 128 query rows of one head at a time and goes through all keys for them. Preparation goes
with the elements of the operands. Nothing is known here of masks, key lengths and packed segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .state import VSmoothState

HOW_TO_KEEP = "sdpa(recipe=...), backend 'vcattn_vc8' and Schedule(short='vcattn') keep such calls"
#: Of an H200 or H100.
MULTIPROCESSORS = 132
TILE = 128
#: Milliseconds that a call takes the host at least: 0.12 to 0.17 there.
HOST = 0.16


def milliseconds(
    q: Sequence[int], k: Sequence[int], layout: str, float32: bool, groupings: float
) -> tuple[float, float]:
    """A call of vc8 and one of PyTorch's attention, for shapes in ``layout``.

    ``groupings``: the share of such calls that group tokens; 2 where each does so from scratch,
    which takes twice as long.
    """
    heads, tokens = (1, 2) if layout == "BHSD" else (2, 1)
    batch, dim = q[0], q[3]
    tiles = batch * q[heads] * math.ceil(q[tokens] / TILE)
    rounds = math.ceil(tiles / MULTIPROCESSORS)
    steps = rounds * math.ceil(k[tokens] / TILE)
    # In millions: queries and output, keys and values.
    q_elements = 2e-6 * batch * q[heads] * q[tokens] * dim
    kv_elements = 2e-6 * batch * k[heads] * k[tokens] * dim

    wide = dim > 64
    ours = 0.024 + 0.0016 * q_elements + 0.003 * kv_elements
    ours += (0.00078 if wide else 0.00063) * steps
    grouping = 0.107 + 0.0038 * kv_elements + (0.00012 * steps if wide else 0.0)
    if dim not in (64, 128):  # preparation pads
        ours += 0.15 + 0.0055 * (q_elements + kv_elements)
        grouping += 0.1 + 0.0036 * kv_elements
    if float32:
        ours += 0.006 * (q_elements + kv_elements)
        products = 1e-9 * batch * q[heads] * q[tokens] * k[tokens] * dim
        theirs = 0.01 + 0.093 * products
    else:
        theirs = 0.0015 * rounds + (0.00158 if wide else 0.00114) * steps
    return max(HOST, ours + groupings * grouping), theirs


def faster_in_torch(
    q: Sequence[int], k: Sequence[int], layout: str, float32: bool, state: VSmoothState | None
) -> str:
    """Empty unless PyTorch is estimated to be the faster one; then both estimates, as text.

    Without a state every call groups from scratch.
    """
    if 0 in q or 0 in k or q[3] > 128:  # vcattn says itself what it cannot run
        return ""
    groupings = 2.0 if state is None else state.groupings
    ours, theirs = milliseconds(q, k, layout, float32, groupings)
    if ours <= theirs:
        return ""
    return f"estimated {theirs:.3f} ms against {ours:.3f} ms for q {tuple(q)} and k {tuple(k)}"
