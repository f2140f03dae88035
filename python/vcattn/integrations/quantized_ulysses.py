"""Ulysses attention that quantizes before the all-to-all: 8 bits of q, k and v on the wire.

Ulysses turns sequence shards (B, S / n, H, d) into head shards (B, S, H / n, d). The mean key of
the whole sequence is taken out first (one all-reduce of (B, H, d)), q and k are rotated by a
Hadamard transform, v loses its sequence mean, and every token of every head is sent as d INT8 codes
and one float32 scale: 0.52 of the bytes of 16 bits at d = 128. The attention then runs on the
decoded tensors without mean and rotation of its own. The output travels back in 16 bits.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _execute, _torch_op
from .._torch_exact import native
from ..schedule import AUTO, TORCH, Choice, resolve

#: What the preparation before the exchange has done already.
PREPARED = "hadamard=off,k_mean=off"


def applies(query: Tensor, key: Tensor, ranks: int) -> bool:
    """Whether these shards can be exchanged in 8 bits: self-attention, equal shards, heads that
    divide, no GQA, and a head dimension that is a power of two."""
    dim = query.shape[3]
    return query.shape == key.shape and query.shape[2] % ranks == 0 and dim & (dim - 1) == 0


@functools.cache
def hadamard(dim: int, device: torch.device) -> Tensor:
    """The orthonormal Hadamard matrix by Sylvester's construction; dim is a power of two."""
    matrix = torch.ones(1, 1, device=device)
    while matrix.shape[0] < dim:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix / dim**0.5


def pack(x: Tensor) -> Tensor:
    """float32 (..., d) -> int8 (..., d + 4): codes of amax / 127 and the bytes of that scale."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.round(x / scale.clamp_min(1e-30)).clamp_(-127, 127).to(torch.int8)
    return torch.cat([codes, scale.contiguous().view(torch.int8)], -1)


def unpack(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """int8 (..., d + 4) -> (..., d) in ``dtype``."""
    scale = packed[..., -4:].contiguous().view(torch.float32)
    return (packed[..., :-4] * scale).to(dtype)


def _sequence_mean(x: Tensor, ranks: int, group: dist.ProcessGroup) -> Tensor:
    """Mean over the tokens of all ranks, (B, 1, H, d)."""
    mean = x.mean(1, keepdim=True) / ranks
    dist.all_reduce(mean, group=group)
    return mean


def _to_heads(x: Tensor, ranks: int, group: dist.ProcessGroup) -> Tensor:
    """(B, S / n, H, c) -> (B, S, H / n, c)."""
    sent = x.unflatten(2, (ranks, -1)).permute(2, 1, 0, 3, 4).contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received.flatten(0, 1).transpose(0, 1)


def _to_tokens(x: Tensor, ranks: int, group: dist.ProcessGroup) -> Tensor:
    """(B, S, H / n, d) -> (B, S / n, H, d)."""
    sent = x.unflatten(1, (ranks, -1)).permute(1, 3, 0, 2, 4).contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received.flatten(0, 1).permute(1, 2, 0, 3)


def _run_prepared(
    q: Tensor, k: Tensor, v: Tensor, rotation: Tensor, choice: Choice, scale: float | None
) -> Tensor:
    """Attention on rotated q and k without another rotation; where the backend's kernels always
    rotate, on q and k rotated back."""
    options: dict[str, Any] = {"layout": "BSHD", "scale": scale}
    rest: tuple[Any, ...] = (None,) * 8
    recipe = choice.recipe + ("," if ":" in choice.recipe else ":") + PREPARED
    inputs = _torch_op.make_inputs(q, k, v, *rest, **options)
    if _execute.why_not(inputs, recipe, "auto"):
        recipe = choice.recipe
        q, k = ((x.float() @ rotation).to(x.dtype) for x in (q, k))
        inputs = _torch_op.make_inputs(q, k, v, *rest, **options)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _torch_op.run_on(inputs, q, out, None, recipe=recipe, backend="auto", state=choice.state)
    return out


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: dist.ProcessGroup,
    *,
    scale: float | None = None,
    recipe: str = AUTO,
) -> Tensor:
    """softmax(q kᵀ · scale) v over the whole sequence, sharded by tokens.

    Args:
        query, key, value: this rank's (B, S / n, H, d) with ``applies``.
        group: the n ranks of the exchange.

    Returns:
        This rank's (B, S / n, H, d), in query's dtype.
    """
    ranks, dtype = dist.get_world_size(group), query.dtype
    rotation = hadamard(query.shape[3], query.device)
    key_mean, value_mean = (_sequence_mean(x.float(), ranks, group) for x in (key, value))
    wire = torch.stack(
        [
            pack(query.float() @ rotation),
            pack((key.float() - key_mean) @ rotation),
            pack(value.float() - value_mean),
        ],
        -2,
    )  # one exchange for the three
    q, k, v = unpack(_to_heads(wire.flatten(3), ranks, group).unflatten(3, (3, -1)), dtype).unbind(
        3
    )
    choice = resolve(recipe, None, q.shape[1], k.shape[1])
    if choice.recipe == TORCH:
        qkv = (x.transpose(1, 2) for x in (q, k, v))
        out = native(*qkv, scale=scale).transpose(1, 2)
    else:
        out = _run_prepared(q, k, v, rotation, choice, scale)
    return _to_tokens(out, ranks, group) + value_mean.to(dtype)
