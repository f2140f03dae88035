"""libvcattn through ctypes: the structures and prototypes of ``vcattn/c.h``.

ctypes releases the GIL during a call, so calls from several threads run at once.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from .errors import BY_STATUS, InternalError, LibraryLoadError

ABI_VERSION = 2
F32, F16, BF16, BOOL = range(4)
CPU, CUDA = range(2)
BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}
ROPE_LAYOUTS = {"interleaved": 0, "half": 1}


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("shape", c_int64 * 4),
        ("stride", c_int64 * 4),
    ]


class Rope(ctypes.Structure):
    _fields_ = [
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("tokens", c_int64),
        ("pairs", c_int64),
        ("layout", c_int32),
    ]


class Segments(ctypes.Structure):
    _fields_ = [("offsets", c_void_p), ("count", c_int64)]


Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)
Deallocate = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)


class Allocator(ctypes.Structure):
    _fields_ = [("allocate", Allocate), ("deallocate", Deallocate), ("context", c_void_p)]


class Arguments(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("out", Tensor),
        ("lse", c_void_p),
        ("lse_stride", c_int64 * 3),
        ("has_scale", c_int32),
        ("scale", c_float),
        ("causal", c_int32),
        ("has_mask", c_int32),
        ("mask", Tensor),
        ("key_lengths", c_void_p),
        ("q_segments", Segments),
        ("k_segments", Segments),
        ("q_rope", Rope),
        ("k_rope", Rope),
        ("device", c_int32),
        ("device_index", c_int32),
        ("stream", c_void_p),
        ("allocator", Allocator),
    ]


class BackendInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("available", c_int32),
        ("status", c_char_p),
        ("kernels", c_char_p),
    ]


# name -> (result, arguments); c_int32 results are statuses.
_TEXT = POINTER(c_char_p)
_CALL = [POINTER(Arguments), c_void_p, c_int32]
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "vcattn_abi_version": (ctypes.c_uint32, []),
    "vcattn_version": (c_char_p, []),
    "vcattn_arguments_size": (c_size_t, []),
    "vcattn_last_error": (c_char_p, []),
    "vcattn_last_error_where": (c_char_p, []),
    "vcattn_recipe_name": (c_char_p, [c_size_t]),
    "vcattn_recipe_summary": (c_char_p, [c_size_t]),
    "vcattn_recipe_create": (c_int32, [c_char_p, POINTER(c_void_p)]),
    "vcattn_recipe_set": (c_int32, [c_void_p, c_char_p, c_char_p]),
    "vcattn_recipe_field": (c_int32, [c_void_p, c_size_t, _TEXT, _TEXT]),
    "vcattn_recipe_destroy": (None, [c_void_p]),
    "vcattn_state_create": (c_int32, [POINTER(c_void_p)]),
    "vcattn_state_create_scheduled": (
        c_int32,
        [c_int32, c_double, c_int32, c_int32, POINTER(c_void_p)],
    ),
    "vcattn_state_begin_step": (c_int32, [c_void_p, c_int32]),
    "vcattn_state_reset": (c_int32, [c_void_p]),
    "vcattn_state_action": (c_int32, [c_void_p, POINTER(c_int32), POINTER(c_int32)]),
    "vcattn_state_permutation": (
        c_int32,
        [c_void_p, c_int64, c_int64, POINTER(c_int32), POINTER(c_size_t)],
    ),
    "vcattn_state_destroy": (None, [c_void_p]),
    "vcattn_attention": (c_int32, [*_CALL, c_void_p]),
    "vcattn_can_use": (c_int32, _CALL),
    "vcattn_explain": (c_int32, [*_CALL, _TEXT, _TEXT]),
    "vcattn_backend_at": (c_int32, [c_size_t, POINTER(BackendInfo)]),
}


def library_path() -> Path:
    """``$VCATTN_LIBRARY`` if set, else the library inside the package."""
    override = os.environ.get("VCATTN_LIBRARY")
    return Path(override) if override else Path(__file__).parent / "lib" / "libvcattn.so.1"


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises LibraryLoadError with what was found and what was expected."""
    path = library_path()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryLoadError(
            f"libvcattn could not be loaded from {path}: {error}. Reinstall vcattn, or set "
            "VCATTN_LIBRARY to a build of it."
        ) from error
    try:
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        abi, size = loaded.vcattn_abi_version(), loaded.vcattn_arguments_size()
    except AttributeError as error:
        raise LibraryLoadError(f"{path} is not a libvcattn of this package: {error}") from error
    if abi != ABI_VERSION or size < ctypes.sizeof(Arguments):
        raise LibraryLoadError(
            f"{path} has ABI version {abi} and arguments of {size} bytes, this package needs "
            f"version {ABI_VERSION} and {ctypes.sizeof(Arguments)} bytes: library and package "
            "come from different releases"
        )
    return loaded


def raise_last_error(status: int) -> None:
    """Raises the exception of a failed status, with the library's message."""
    handle = library()
    message = handle.vcattn_last_error().decode(errors="replace")
    where = handle.vcattn_last_error_where().decode(errors="replace")
    raise BY_STATUS.get(status, InternalError)(message, where)


def check(status: int) -> None:
    if status != 0:
        raise_last_error(status)
