"""Any framework's array as a pointer with shape, strides and device; nothing is copied."""

from __future__ import annotations

import ctypes
import functools
import sys
from dataclasses import dataclass
from typing import Any

from ._library import BF16, BOOL, CPU, CUDA, F16, F32
from .errors import InvalidArgumentError

DTYPES = {"float32": F32, "float16": F16, "bfloat16": BF16, "bool": BOOL, "int32": -1}


@dataclass(slots=True)
class View:
    """Strides count elements. ``owner`` keeps the memory alive while the view is in use."""

    data: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: int
    index: int
    owner: object


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    """dlpack.h, version 0.x and the tensor inside version 1.x's managed structure."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_NAMES = {
    (2, 32): "float32",
    (2, 16): "float16",
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (0, 32): "int32",
}
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13


def is_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_numpy(array: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def view(array: Any, name: str) -> View:
    """The view of a torch tensor, NumPy array or DLPack producer.

    Raises:
        InvalidArgumentError: naming ``name``, if the object is none of these or lies on a device
            or has elements that the library does not know.
    """
    if is_torch(array):
        return _torch_view(array, name)
    if is_numpy(array):
        return _numpy_view(array, name)
    if hasattr(array, "__dlpack__"):
        return _dlpack_view(array, name)
    raise InvalidArgumentError(
        f"{name}: a {type(array).__name__} was given (supported: torch tensors, NumPy arrays, and "
        "whatever implements __dlpack__)",
        name,
    )


def _reject_dtype(name: str, dtype: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name}: dtype {dtype} was given (supported: float32, float16, bfloat16; masks also bool)",
        name,
    )


@functools.cache
def _torch_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _torch_view(tensor: Any, name: str) -> View:
    dtype = _torch_name(tensor.dtype)
    if dtype not in DTYPES:
        raise _reject_dtype(name, dtype)
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(f"{name}: device {device} (supported: cpu, cuda)", name)
    kind = CUDA if device.type == "cuda" else CPU
    return View(
        tensor.data_ptr(),
        dtype,
        tuple(tensor.shape),
        tensor.stride(),
        kind,
        device.index or 0,
        tensor,
    )


def _numpy_view(array: Any, name: str) -> View:
    dtype = array.dtype.name  # "bfloat16" is that of ml_dtypes
    if dtype not in DTYPES or not array.dtype.isnative:
        raise _reject_dtype(name, array.dtype)
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise InvalidArgumentError(f"{name}: strides {array.strides} split its elements", name)
    strides = tuple(stride // size for stride in array.strides)
    return View(array.ctypes.data, dtype, array.shape, strides, CPU, 0, array)


def _dlpack_view(array: Any, name: str) -> View:
    kind, index = (int(part) for part in array.__dlpack_device__())
    if kind not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise InvalidArgumentError(f"{name}: DLPack device {kind} (supported: cpu, cuda)", name)
    on_host = kind in (_DL_CPU, _DL_CUDA_HOST)
    # Stream 1 is CUDA's legacy default: the producer orders its work before it.
    capsule = array.__dlpack__() if on_host else array.__dlpack__(stream=1)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    dtype = _DL_NAMES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise _reject_dtype(name, getattr(array, "dtype", "of an unknown kind"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = dense_strides(shape)
    if tensor.strides:
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    data = (tensor.data or 0) + tensor.byte_offset
    # The capsule frees the tensor when it dies, unless someone renames it: hold it.
    return View(
        data,
        dtype,
        shape,
        strides,
        CPU if on_host else CUDA,
        0 if on_host else index,
        (array, capsule),
    )


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
