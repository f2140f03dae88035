"""``torch.ops.vcattn.attention``: the operator that torch.compile, autocast and graphs see."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from . import _execute
from ._call import Inputs
from ._short import HOW_TO_KEEP, faster_in_torch
from ._torch_exact import exact
from ._torch_memory import ALLOCATOR
from ._views import View, view
from .errors import UnsupportedError
from .schedule import TORCH, Choice, resolve, yields
from .state import VSmoothState, by_number

SCHEMA = (
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None, Tensor? key_lengths=None, "
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? q_cos=None, "
    "Tensor? q_sin=None, Tensor? k_cos=None, Tensor? k_sin=None, *, float? scale=None, "
    "bool causal=False, str recipe='', str layout='BHSD', str rope_layout='interleaved', "
    "str backend='auto', int state=0, int shards=1, bool fallback=False, "
    "bool return_lse=False) -> (Tensor, Tensor)"
)

_library = torch.library.Library("vcattn", "DEF")
_library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))


def _optional(tensor: Tensor | None, name: str) -> View | None:
    return None if tensor is None else view(tensor, name)


def _rope(cos: Tensor | None, sin: Tensor | None, name: str) -> tuple[View, View] | None:
    return None if cos is None or sin is None else (view(cos, name), view(sin, name))


def lse_like(q: Tensor, layout: str) -> Tensor:
    batch, first, second = q.shape[:3]
    heads, tokens = (first, second) if layout == "BHSD" else (second, first)
    return q.new_empty((batch, heads, tokens), dtype=torch.float32)


def make_inputs(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor | None, **options: Any) -> Inputs:
    mask, key_lengths, cu_q, cu_k, q_cos, q_sin, k_cos, k_sin = rest
    return Inputs(
        view(q, "q"),
        view(k, "k"),
        view(v, "v"),
        mask=_optional(mask, "mask"),
        key_lengths=_optional(key_lengths, "key_lengths"),
        cu_seqlens_q=_optional(cu_q, "cu_seqlens_q"),
        cu_seqlens_k=_optional(cu_k, "cu_seqlens_k"),
        q_rope=_rope(q_cos, q_sin, "q_rope"),
        k_rope=_rope(k_cos, k_sin, "k_rope"),
        **options,
    )


def run_on(inputs: Inputs, q: Tensor, out: Tensor, lse: Tensor | None, **how: Any) -> None:
    """Runs on q's device and its current stream, with PyTorch's memory."""
    out_view, lse_view = view(out, "out"), _optional(lse, "lse")
    if not q.is_cuda:
        _execute.run(inputs, out_view, lse_view, **how)
        return
    elsewhere = q.device.index != torch.cuda.current_device()
    with torch.cuda.device(q.device) if elsewhere else contextlib.nullcontext():
        stream = torch.cuda.current_stream(q.device).cuda_stream
        _execute.run(inputs, out_view, lse_view, stream=stream, allocator=ALLOCATOR, **how)


_warned: set[str] = set()


def handed_back(reason: str, detail: str = "") -> None:
    """Counts a call that PyTorch computes instead, and says so once per reason."""
    _execute.calls[f"torch: {reason}"] += 1
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"vcattn: PyTorch computes this attention: {reason}{detail}", stacklevel=2)


# As torch.compiler.assume_constant_result, which imports the compiler: it runs when a call is
# traced and is not part of the graph.
handed_back._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def choose(
    q: Tensor, k: Tensor, layout: str, recipe: str, state: VSmoothState | None, shards: int,
    dense: bool,
) -> Choice:  # fmt: skip
    """How a call runs; counts it, and says so, if PyTorch gets it. ``dense``: without a mask, key
    lengths, segments, causality and an LSE."""
    queries, keys = (x.shape[2 if layout == "BHSD" else 1] for x in (q, k))
    choice = resolve(recipe, state, queries, keys, shards)
    if choice.recipe == TORCH:
        _execute.calls["torch: by choice"] += 1
    elif dense and _is_hopper(q.device) and yields(recipe, queries, keys):
        float32 = q.dtype == torch.float32
        estimates = faster_in_torch(q.shape, k.shape, layout, float32, choice.state)
        if estimates:
            handed_back("it is faster there", f" ({estimates}; {HOW_TO_KEEP})")
            return Choice(TORCH, None)
    return choice


def _hand_back(
    q: Tensor, k: Tensor, v: Tensor, rest: tuple[Tensor | None, ...], layout: str, **options: Any
) -> tuple[Tensor, Tensor]:
    """PyTorch's result, with the strides that the fake kernel promises."""
    if any(tensor is not None for tensor in rest[2:]):
        raise UnsupportedError("recipe: PyTorch's attention takes no segments or rope", "recipe")
    like = q
    if layout == "BSHD":
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    out, lse = exact(q, k, v, rest[0], rest[1], **options)
    if layout == "BSHD":
        out = out.transpose(1, 2)
    if out.stride() != torch.empty_like(like, device="meta").stride():
        out = torch.empty_like(like).copy_(out)
    return out, _no_lse(q) if lse is None else lse.contiguous()


def _no_lse(q: Tensor) -> Tensor:
    return q.new_empty(0, dtype=torch.float32)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *rest: Tensor | None,
    scale: float | None = None,
    causal: bool = False,
    recipe: str = "",
    layout: str = "BHSD",
    rope_layout: str = "interleaved",
    backend: str = "auto",
    state: int = 0,
    shards: int = 1,
    fallback: bool = False,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor]:
    rest = rest + (None,) * (8 - len(rest))
    exact_options = {"scale": scale, "causal": causal, "return_lse": return_lse}
    dense = not (causal or return_lse) and all(tensor is None for tensor in rest)
    choice = choose(q, k, layout, recipe, by_number(state), shards, dense)
    if choice.recipe == TORCH:
        return _hand_back(q, k, v, rest, layout, **exact_options)
    out = torch.empty_like(q)
    lse = lse_like(q, layout) if return_lse else None
    inputs = make_inputs(
        q, k, v, *rest, layout=layout, scale=scale, causal=causal, rope_layout=rope_layout
    )  # fmt: skip
    try:
        run_on(inputs, q, out, lse, recipe=choice.recipe, backend=backend, state=choice.state)
    except UnsupportedError as error:
        if not fallback:
            raise
        handed_back(str(error))
        return _hand_back(q, k, v, rest, layout, **exact_options)
    return out, _no_lse(q) if lse is None else lse


def _fake(
    q: Tensor, k: Tensor, v: Tensor, *rest: Tensor | None, layout: str = "BHSD",
    return_lse: bool = False, **options: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), lse_like(q, layout) if return_lse else _no_lse(q)


def _save_nothing(ctx: object, inputs: object, keyword_only_inputs: object, output: object) -> None:
    """The backward pass needs nothing: it refuses."""


def _backward(context: object, *gradients: Tensor) -> None:
    raise UnsupportedError(
        "gradient: vcattn computes the forward pass only (supported: torch.no_grad(), "
        "torch.inference_mode(); train with torch.nn.functional.scaled_dot_product_attention)",
        "gradient",
    )


_library.impl("attention", _attention, "CPU")
_library.impl("attention", _attention, "CUDA")
torch.library.register_fake("vcattn::attention", _fake, lib=_library)
torch.library.register_autograd(
    "vcattn::attention", _backward, setup_context=_save_nothing, lib=_library
)
