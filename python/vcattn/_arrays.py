"""Attention on NumPy arrays and DLPack producers: results come back as the caller's kind."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from ._call import Inputs
from ._execute import run
from ._library import CPU
from ._views import View, is_numpy, is_torch, view
from .errors import InvalidArgumentError, UnsupportedError
from .state import VSmoothState


def as_integers(values: Any, name: str) -> View | None:
    """An int32 view of a list or array; lists lie in host memory."""
    if values is None:
        return None
    if not isinstance(values, (list, tuple)):
        return view(values, name)
    if not all(isinstance(value, int) for value in values):
        raise InvalidArgumentError(f"{name}: integers are needed, {values!r} was given", name)
    held = (ctypes.c_int32 * len(values))(*values)
    return View(ctypes.addressof(held), "int32", (len(values),), (1,), CPU, 0, held)


def as_offsets(values: Any, name: str) -> View | None:
    """``as_integers`` in host memory: torch tensors are copied there, as ``attention`` does."""
    return as_integers(values.int().cpu().contiguous() if is_torch(values) else values, name)


def array_attention(
    q: Any,
    inputs: Inputs,
    recipe: str,
    state: VSmoothState | None,
    backend: str,
    return_lse: bool,
    out: Any,
) -> Any:
    """Runs on the arrays behind ``inputs`` and returns arrays of q's kind."""
    if inputs.q.device != CPU:
        return _on_device(q, inputs, recipe, state, backend, return_lse, out)
    import numpy as np

    if out is None:
        dtype: Any = inputs.q.dtype
        if dtype == "bfloat16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        result: Any = np.empty(inputs.q.shape, dtype)
    else:
        result = out
    lse: Any = np.empty(_lse_shape(inputs), np.float32) if return_lse else None
    lse_view = None if lse is None else view(lse, "lse")
    run(inputs, view(result, "out"), lse_view, recipe, backend, state)
    to_caller = (lambda x: x) if is_numpy(q) else _from_numpy(q)
    given_back = out if out is not None else to_caller(result)
    return (given_back, to_caller(lse)) if return_lse else given_back


def _lse_shape(inputs: Inputs) -> tuple[int, ...]:
    shape = inputs.q.shape
    if len(shape) != 4:
        return (0, 0, 0)
    return shape[:3] if inputs.layout == "BHSD" else (shape[0], shape[2], shape[1])


def _from_numpy(like: Any) -> Any:
    """Conversion from NumPy to the namespace of ``like``; identity if it names none."""
    namespace = getattr(like, "__array_namespace__", None)
    # NumPy exports no bfloat16 by DLPack, so ``asarray`` and not ``from_dlpack``.
    convert = getattr(namespace(), "asarray", None) if namespace else None
    return convert or (lambda array: array)


def _on_device(
    q: Any,
    inputs: Inputs,
    recipe: str,
    state: VSmoothState | None,
    backend: str,
    return_lse: bool,
    out: Any,
) -> Any:
    """CUDA arrays of a library whose arrays may be written, such as CuPy; on the legacy default
    stream, with which DLPack's producers synchronize."""
    xp = _writable_namespace(q)
    result = xp.empty(q.shape, dtype=q.dtype) if out is None else out
    lse = xp.empty(_lse_shape(inputs), dtype=xp.float32) if return_lse else None
    lse_view = None if lse is None else view(lse, "lse")
    run(inputs, view(result, "out"), lse_view, recipe, backend, state)
    return (result, lse) if return_lse else result


def _writable_namespace(like: Any) -> Any:
    """The module that makes arrays of ``like``'s kind on its device.

    CuPy is known by its package's name, since not every version has ``__array_namespace__`` on its
    arrays. Others have to say that theirs may be written: JAX's may not.
    """
    kind = type(like)
    package = sys.modules.get(kind.__module__.partition(".")[0])
    if package is not None and package.__name__ == "cupy":
        return package
    interface = getattr(like, "__cuda_array_interface__", None)
    if interface is not None and not interface["data"][1] and hasattr(like, "__array_namespace__"):
        return like.__array_namespace__()
    raise UnsupportedError(
        f"q: results of type {kind.__module__}.{kind.__name__} cannot be allocated on a "
        "device (supported: torch tensors, CuPy arrays)",
        "q",
    )
