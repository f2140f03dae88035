"""The public entries: ``attention``, ``can_use``, ``why_not`` and ``explain``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import _arrays, _execute
from ._call import Inputs
from ._library import CUDA
from ._short import HOW_TO_KEEP, faster_in_torch
from ._views import View, is_torch, view
from .errors import Error
from .recipe import DEFAULT, Recipe, spec_of
from .schedule import AUTO, active, resolve, yields
from .state import VSmoothState

if (
    sys.modules.get("torch") is not None
):  # registers the operator; otherwise the first torch call does
    from . import _torch_attention  # noqa: F401


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    recipe: str | Recipe | None = None,
    scale: float | None = None,
    causal: bool = False,
    mask: Any = None,
    key_lengths: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    layout: str = "BHSD",
    q_rope: Any = None,
    k_rope: Any = None,
    rope_layout: str = "interleaved",
    state: VSmoothState | None = None,
    return_lse: bool = False,
    backend: str = "auto",
    out: Any = None,
) -> Any:
    """softmax(q kᵀ · scale) v in 8 or 4 bits.

    Args:
        q: (B, Hq, Sq, d), d from 1 to 256; float32, float16 or bfloat16; any strides. A torch
            tensor (CPU or CUDA), a NumPy array (bfloat16 through ml_dtypes) or anything that
            implements DLPack. 64-bit input is cast under autocast only.
        k: (B, Hkv, Skv, d); Hkv divides Hq, query head h reads KV head h * Hkv // Hq.
        v: like k.
        recipe: a name of ``vcattn.recipes()``, a name with fields (``"vc8:hadamard=off"``) or a
            ``Recipe``. None: the active ``Schedule``'s, else "vc8".
        scale: multiplies the scores; None: d ** -0.5.
        causal: query i sees keys j <= i + Skv - Sq (bottom-right aligned).
        mask: broadcastable to (B, Hq, Sq, Skv) as in NumPy; bool (True = visible) or added to the
            scaled scores. Rows that see nothing give 0 and an LSE of -inf.
        key_lengths: visible keys per batch entry, integers (B,); the rest is padding, never read.
        cu_seqlens_q, cu_seqlens_k: offsets of packed sequences (n + 1,), with B = 1, or with
            torch tensors of shape (tokens, heads, d). Read by the host: a list or CPU tensor costs
            nothing, a CUDA tensor is copied, which waits for the GPU. Segments run one by one.
        layout: "BHSD" or "BSHD": the axes of q, k, v and out. The LSE is always (B, Hq, Sq).
        q_rope, k_rope: (cos, sin), each float32 (tokens, pairs), applied before all else.
            rope_layout "interleaved" pairs (x0, x1), "half" pairs (x0, x[d/2]).
        state: V-Smooth state of this layer; None: the active ``Schedule``'s, else self-contained.
        return_lse: also return the natural-log LSE of the scaled scores, float32 (B, Hq, Sq).
        backend: "auto", "cpu" or "cuda".
        out: where to write, of q's shape; not with gradients; a copy under torch.compile.

    Returns:
        The output in q's shape, dtype and kind (and memory order, for torch), or (output, LSE).

    Raises:
        InvalidArgumentError (a ValueError): names the argument and what is supported.
        UnsupportedError (a NotImplementedError): no backend of this build can run the call.
        OutOfMemoryError, DeviceError; TypeError for unknown keywords. Gradients are refused in
        the backward pass with an UnsupportedError.
    """
    if is_torch(q):
        from ._torch_attention import torch_attention

        return torch_attention(
            q, k, v, recipe=spec_of(recipe), scale=scale, causal=causal, mask=mask,
            key_lengths=key_lengths, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            layout=layout, q_rope=q_rope, k_rope=k_rope, rope_layout=rope_layout, state=state,
            return_lse=return_lse, backend=backend, out=out,
        )  # fmt: skip
    inputs = _views_of(
        q, k, v, scale=scale, causal=causal, mask=mask, key_lengths=key_lengths,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, layout=layout, q_rope=q_rope,
        k_rope=k_rope, rope_layout=rope_layout,
    )  # fmt: skip
    tokens = 2 if layout == "BHSD" else 1
    queries, keys = (x.shape[tokens] if len(x.shape) == 4 else 0 for x in (inputs.q, inputs.k))
    choice = resolve(spec_of(recipe), state, queries, keys)
    return _arrays.array_attention(q, inputs, *choice, backend, return_lse, out)


def _views_of(
    q: Any, k: Any, v: Any, *, mask: Any = None, key_lengths: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, q_rope: Any = None, k_rope: Any = None, **plain: Any,
) -> Inputs:  # fmt: skip
    def rope(tables: Any, name: str) -> tuple[View, View] | None:
        return None if tables is None else (view(tables[0], name), view(tables[1], name))

    return Inputs(
        view(q, "q"),
        view(k, "k"),
        view(v, "v"),
        mask=None if mask is None else view(mask, "mask"),
        key_lengths=_arrays.as_integers(key_lengths, "key_lengths"),
        cu_seqlens_q=_arrays.as_offsets(cu_seqlens_q, "cu_seqlens_q"),
        cu_seqlens_k=_arrays.as_offsets(cu_seqlens_k, "cu_seqlens_k"),
        q_rope=rope(q_rope, "q_rope"),
        k_rope=rope(k_rope, "k_rope"),
        **plain,
    )


def why_not(
    q: Any,
    k: Any,
    v: Any,
    *,
    recipe: str | Recipe | None = None,
    backend: str = "auto",
    **call: Any,
) -> str:
    """Empty if ``attention`` can run this call, else the reason why not; computes nothing.

    Takes the keywords of ``attention`` that describe the call (mask, causal, layout, ...). Never
    raises for bad arguments; unknown keywords raise TypeError. Under torch.compile a graph break:
    ask before compiling.
    """
    return _probe(q, _why_not, q, k, v, recipe, backend, call)


def _why_not(
    q: Any, k: Any, v: Any, recipe: str | Recipe | None, backend: str, call: dict[str, Any]
) -> str:
    try:
        inputs = _views_of(q, k, v, **call)
    except Error as error:
        return str(error)
    return _execute.why_not(inputs, spec_of(recipe) or DEFAULT, backend)


def can_use(
    q: Any,
    k: Any,
    v: Any,
    *,
    recipe: str | Recipe | None = None,
    backend: str = "auto",
    **call: Any,
) -> bool:
    """Whether ``attention`` can run this call; ``why_not`` gives the reason."""
    return not why_not(q, k, v, recipe=recipe, backend=backend, **call)


def explain(
    q: Any,
    k: Any,
    v: Any,
    *,
    recipe: str | Recipe | None = None,
    backend: str = "auto",
    **call: Any,
) -> str:
    """What would run for this call and why, one sentence a line. Raises as ``attention`` does."""
    return _probe(q, _explain, q, k, v, recipe, backend, call)


def _explain(
    q: Any, k: Any, v: Any, recipe: str | Recipe | None, backend: str, call: dict[str, Any]
) -> str:
    inputs = _views_of(q, k, v, **call)
    text = _execute.explain(inputs, spec_of(recipe) or DEFAULT, backend)
    tokens = 2 if inputs.layout == "BHSD" else 1
    left_open = recipe is None and backend == "auto"
    left_open = left_open and yields(AUTO, inputs.q.shape[tokens], inputs.k.shape[tokens])
    if left_open and is_torch(q) and inputs.q.device == CUDA and inputs.dense:
        schedule = active()
        state = None if schedule is None else schedule.new_state()
        shapes = inputs.q.shape, inputs.k.shape, inputs.layout
        estimates = faster_in_torch(*shapes, inputs.q.dtype == "float32", state)
        if estimates:
            text += f"\nvcattn.sdpa hands such calls to PyTorch: {estimates}; {HOW_TO_KEEP}."
    return text


def _probe(q: Any, function: Callable[..., str], *arguments: Any) -> str:
    """Reads pointers and calls the library, which torch.compile cannot trace."""
    if is_torch(q):
        import torch

        if torch.compiler.is_compiling():
            from ._torch_attention import untraced

            return untraced(function, *arguments)
    return function(*arguments)
