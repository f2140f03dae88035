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


def milliseconds(
    q: Sequence[int], k: Sequence[int], layout: str, float32: bool, groupings: float
) -> tuple[float, float]:
    """A call of vc8 and one of PyTorch's attention, for shapes in ``layout``.

    ``groupings``: the share of such calls that group tokens.
    """
    heads, tokens = (1, 2) if layout == "BHSD" else (2, 1)
    batch, dim = q[0], q[3]
    tiles = batch * q[heads] * math.ceil(q[tokens] / TILE)
    rounds = math.ceil(tiles / MULTIPROCESSORS)
    steps = rounds * math.ceil(k[tokens] / TILE)
    kv_elements = 2e-6 * batch * k[heads] * k[tokens] * dim
    elements = 2e-6 * batch * q[heads] * q[tokens] * dim + kv_elements

    ours = 0.057 + 0.0020 * elements + (0.00085 if dim > 64 else 0.00066) * steps
    ours += groupings * (0.25 + 0.0123 * kv_elements)
    if dim not in (64, 128):  # preparation pads
        ours += 0.14 + 0.0062 * elements + groupings * 0.021 * kv_elements
    if not float32:
        return ours, 0.0012 * rounds + (0.00161 if dim > 64 else 0.00113) * steps
    products = 1e-9 * batch * q[heads] * q[tokens] * k[tokens] * dim
    return ours + 0.0049 * elements, 0.01 + 0.093 * products


def faster_in_torch(
    q: Sequence[int], k: Sequence[int], layout: str, float32: bool, state: VSmoothState | None
) -> str:
    """Empty unless PyTorch is estimated to be the faster one; then both estimates, as text.

    Without a state every call groups.
    """
    if 0 in q or 0 in k:
        return ""
    groupings = 1.0 if state is None else state.groupings
    ours, theirs = milliseconds(q, k, layout, float32, groupings)
    if ours <= theirs:
        return ""
    return f"estimated {theirs:.2f} ms against {ours:.2f} ms for q {tuple(q)} and k {tuple(k)}"
