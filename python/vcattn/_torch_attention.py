"""``vcattn.attention`` for torch tensors: plain Python that torch.compile traces to the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import _torch_op
from .errors import InvalidArgumentError
from .schedule import resolve

T = TypeVar("T")


# torch.compiler.disable does the same and imports the compiler, which takes seconds, at once.
@torch._disable_dynamo  # type: ignore[untyped-decorator,unused-ignore]
def untraced(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls ``function``, which torch.compile does not enter: a graph break."""
    return function(*arguments, **options)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, float32 inputs become its 16-bit type, as SDPA's do."""
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    target = torch.get_autocast_dtype(kind)
    return tuple(t.to(target) if t.dtype == torch.float32 else t for t in tensors)


def integers(values: Any, device: torch.device) -> Tensor | None:
    """An int32 tensor on ``device``."""
    if values is None:
        return None
    if isinstance(values, Tensor):
        return values.to(device=device, dtype=torch.int32).contiguous()
    return torch.tensor(values, dtype=torch.int32, device=device)


def offsets(values: Any, name: str) -> Tensor | None:
    """An int32 tensor in host memory; one on a GPU is copied, which waits for the GPU."""
    on_gpu = isinstance(values, Tensor) and values.is_cuda
    compiling = torch.compiler.is_compiling()
    if on_gpu and not compiling and torch.cuda.is_current_stream_capturing():
        raise InvalidArgumentError(
            f"{name}: lies on {values.device}, which cannot be read while a CUDA graph is captured "
            "(supported: a list or a CPU tensor)",
            name,
        )
    return integers(values, torch.device("cpu"))


def tables(rope: Any, name: str) -> tuple[Tensor | None, Tensor | None]:
    """(cos, sin), each dense float32 (tokens, pairs)."""
    if rope is None:
        return None, None
    if len(rope) != 2:
        raise InvalidArgumentError(f"{name}: (cos, sin) is needed", name)
    cos, sin = (table.to(torch.float32).contiguous() for table in rope)
    return cos, sin


def torch_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    recipe: str,
    mask: Tensor | None,
    key_lengths: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    q_rope: Any,
    k_rope: Any,
    state: Any,
    return_lse: bool,
    out: Tensor | None,
    **options: Any,
) -> Any:
    q, k, v = autocast(q, k, v)
    packed = q.dim() == 3 and cu_seqlens_q is not None
    if packed:  # (tokens, heads, d)
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        options["layout"] = "BSHD"
    if q.dim() != 4:
        raise InvalidArgumentError(
            f"q: {q.dim()} axes (supported: 4; packed sequences also (tokens, heads, d))", "q"
        )
    device = q.device
    rest = (
        mask,
        integers(key_lengths, device),
        offsets(cu_seqlens_q, "cu_seqlens_q"),
        offsets(cu_seqlens_k, "cu_seqlens_k"),
        *tables(q_rope, "q_rope"),
        *tables(k_rope, "k_rope"),
    )
    lse: Tensor | None
    if out is not None and not torch.compiler.is_compiling():
        lse = _into(out.unsqueeze(0) if packed else out, q, k, v, rest, recipe, state, return_lse,
                    options)  # fmt: skip
        result = out
    else:
        number = 0 if state is None else state.number
        result, lse = torch.ops.vcattn.attention(
            q, k, v, *rest, recipe=recipe, state=number, return_lse=return_lse, **options
        )
        if packed:
            result = result.squeeze(0)
        if out is not None:
            result = out.copy_(result)
    if lse is None or not return_lse:
        return result
    return result, lse.squeeze(0) if packed else lse


def _into(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: tuple[Tensor | None, ...], recipe: str,
    state: Any, return_lse: bool, options: dict[str, Any],
) -> Tensor | None:  # fmt: skip
    """Writes into the caller's tensor. Not traceable: the operator itself is functional."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v)):
        raise InvalidArgumentError("out: cannot be given where gradients are recorded", "out")
    backend = options.pop("backend")
    lse = _torch_op.lse_like(q, options["layout"]) if return_lse else None
    inputs = _torch_op.make_inputs(q, k, v, *rest, **options)
    tokens = 2 if options["layout"] == "BHSD" else 1
    choice = resolve(recipe, state, q.shape[tokens], k.shape[tokens])
    _torch_op.run_on(inputs, q, out, lse, recipe=choice.recipe, backend=backend, state=choice.state)
    return lse
