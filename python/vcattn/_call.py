"""One call's views gathered into the library's argument structure."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from . import _library as lib
from ._library import Allocator, Arguments, Rope, Segments, Tensor
from ._views import DTYPES, View
from .errors import InvalidArgumentError

LAYOUTS = ("BHSD", "BSHD")
_SIZE = ctypes.sizeof(Arguments)


@dataclass(slots=True)
class Inputs:
    """What one call reads, as views. ``layout`` tells the order of q's, k's and v's axes.

    q is (B, Hq, Sq, d), k and v (B, Hkv, Skv, d) under "BHSD"; "BSHD" swaps the middle axes.
    mask broadcasts to (B, Hq, Sq, Skv) whatever the layout. key_lengths is int32 (B,); the
    cu_seqlens are int32 (segments + 1,) in host memory. A rope is (cos, sin), each float32
    (tokens, pairs).
    """

    q: View
    k: View
    v: View
    layout: str = "BHSD"
    scale: float | None = None
    causal: bool = False
    mask: View | None = None
    key_lengths: View | None = None
    cu_seqlens_q: View | None = None
    cu_seqlens_k: View | None = None
    q_rope: tuple[View, View] | None = None
    k_rope: tuple[View, View] | None = None
    rope_layout: str = "interleaved"

    @property
    def dense(self) -> bool:
        """Whether every query sees every key, at places of its own."""
        hidden = self.mask, self.key_lengths, self.cu_seqlens_q, self.cu_seqlens_k
        return not self.causal and all(view is None for view in hidden)


def make_arguments(
    inputs: Inputs,
    out: View,
    lse: View | None,
    stream: int = 0,
    allocator: Allocator | None = None,
) -> Arguments:
    """The structure for ``vcattn_attention``. The views must outlive its use.

    Raises:
        InvalidArgumentError: what Python has to check itself: ranks, devices, integer tensors.
    """
    if inputs.layout not in LAYOUTS:
        raise _invalid("layout", f"{inputs.layout!r} was given (supported: BHSD, BSHD)")
    q, swap = inputs.q, inputs.layout == "BSHD"
    a = Arguments(struct_size=_SIZE, device=q.device, device_index=q.index, stream=stream or None)
    a.q = _tensor(q, "q", q, swap)
    a.k = _tensor(inputs.k, "k", q, swap)
    a.v = _tensor(inputs.v, "v", q, swap)
    a.out = _tensor(out, "out", q, swap)
    if lse is not None:
        a.lse = lse.data
        a.lse_stride[:] = (1, 1, 1) if 0 in lse.shape else lse.stride
    if inputs.scale is not None:
        a.has_scale, a.scale = 1, inputs.scale
    a.causal = inputs.causal
    if inputs.mask is not None:
        a.has_mask, a.mask = 1, _mask(inputs.mask, q)
    if inputs.key_lengths is not None:
        batch = q.shape[0] if len(q.shape) == 4 else 0
        lengths = _integers(inputs.key_lengths, "key_lengths")
        if lengths.shape[0] != batch:
            raise _invalid("key_lengths", f"{lengths.shape[0]} entries for a batch of {batch}")
        _same_device(lengths, "key_lengths", q)
        a.key_lengths = lengths.data
    a.q_segments = _segments(inputs.cu_seqlens_q, "cu_seqlens_q")
    a.k_segments = _segments(inputs.cu_seqlens_k, "cu_seqlens_k")
    a.q_rope = _rope(inputs.q_rope, "q_rope", q, inputs.rope_layout)
    a.k_rope = _rope(inputs.k_rope, "k_rope", q, inputs.rope_layout)
    if allocator is not None:
        a.allocator = allocator
    return a


def _invalid(where: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{where}: {message}", where)


def _same_device(view: View, name: str, q: View) -> None:
    if (view.device, view.index) != (q.device, q.index):
        raise _invalid(name, "lies on another device than q")


def _tensor(view: View, name: str, q: View, swap: bool) -> Tensor:
    if len(view.shape) != 4:
        raise _invalid(name, f"{len(view.shape)} axes in shape {view.shape} (supported: 4)")
    _same_device(view, name, q)
    shape, stride = view.shape, view.stride
    if swap:
        shape = (shape[0], shape[2], shape[1], shape[3])
        stride = (stride[0], stride[2], stride[1], stride[3])
    if 0 in shape:
        stride = (1, 1, 1, 1)  # nothing is there to overlap, whatever NumPy says
    dtype = DTYPES[view.dtype]
    if dtype < 0:
        raise _invalid(name, f"dtype {view.dtype} (supported: float32, float16, bfloat16)")
    return Tensor(
        view.data or None, dtype, (ctypes.c_int64 * 4)(*shape), (ctypes.c_int64 * 4)(*stride)
    )


def _mask(view: View, q: View) -> Tensor:
    """Aligned to the right as in NumPy: (Sq, Skv), (Hq, Sq, Skv) or (B, Hq, Sq, Skv)."""
    missing = 4 - len(view.shape)
    if not 0 <= missing <= 3:
        raise _invalid("mask", f"{len(view.shape)} axes in shape {view.shape} (supported: 1 to 4)")
    ones: tuple[int, ...] = (1,) * missing
    wide = View(
        view.data,
        view.dtype,
        ones + view.shape,
        (0,) * missing + view.stride,
        view.device,
        view.index,
        view.owner,
    )
    return _tensor(wide, "mask", q, swap=False)


def _integers(view: View, name: str) -> View:
    if view.dtype != "int32" or len(view.shape) != 1 or (view.shape[0] > 1 and view.stride[0] != 1):
        raise _invalid(name, f"{view.dtype} {view.shape} (supported: dense int32, one axis)")
    return view


def _segments(view: View | None, name: str) -> Segments:
    if view is None:
        return Segments()
    offsets = _integers(view, name)
    if offsets.device != lib.CPU:
        raise _invalid(name, "the offsets lie on a device (supported: host memory)")
    if offsets.shape[0] < 1:
        raise _invalid(name, "no offsets were given")
    return Segments(offsets.data, offsets.shape[0] - 1)


def _rope(tables: Sequence[View] | None, name: str, q: View, layout: str) -> Rope:
    if tables is None:
        return Rope()
    if layout not in lib.ROPE_LAYOUTS:
        raise _invalid("rope_layout", f"{layout!r} (supported: {', '.join(lib.ROPE_LAYOUTS)})")
    cos, sin = tables
    for table in (cos, sin):
        _same_device(table, name, q)
        dense = table.stride[-1:] == (1,) and table.stride[:1] == table.shape[-1:]
        if table.dtype != "float32" or len(table.shape) != 2 or not dense:
            raise _invalid(name, "tables must be dense float32 (tokens, pairs)")
    if cos.shape != sin.shape:
        raise _invalid(name, f"cos is {cos.shape} and sin {sin.shape}")
    return Rope(cos.data, sin.data, *cos.shape, lib.ROPE_LAYOUTS[layout])
