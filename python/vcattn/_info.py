"""Probes. They never raise and never create a CUDA context of their own accord."""

from __future__ import annotations

import re
from ctypes import byref
from typing import Any

from ._execute import calls
from ._library import ABI_VERSION, BackendInfo, library, library_path
from .errors import Error
from .recipe import recipes


def backends() -> list[dict[str, Any]]:
    """Per backend of this build: name, available, status, kernels; [] without a library."""
    found: list[dict[str, Any]] = []
    info = BackendInfo()
    try:
        while library().vcattn_backend_at(len(found), byref(info)) == 0:
            found.append(
                {
                    "name": info.name.decode(),
                    "available": bool(info.available),
                    "status": info.status.decode(errors="replace"),
                    "kernels": info.kernels.decode().split("\n") if info.kernels else [],
                }
            )
    except Error:
        return []
    return found


def is_available(device: str = "cpu") -> bool:
    """Whether calls on "cpu" or "cuda" tensors can run here at all."""
    kind = str(device).partition(":")[0]
    return any(entry["available"] for entry in backends() if entry["name"] == kind)


def supported_archs() -> list[str]:
    """The GPU architectures whose kernels this build holds, for example ["sm_90"]."""
    names = [kernel for entry in backends() for kernel in entry["kernels"]]
    return sorted(
        {f"sm_{match[1]}" for name in names if (match := re.search(r"sm_?(\d+[af]?)", name))}
    )


def info() -> dict[str, Any]:
    """Versions, the library in use, backends with devices and kernels, recipes."""
    from . import __version__

    report: dict[str, Any] = {
        "version": __version__,
        "abi": ABI_VERSION,
        "library": str(library_path()),
        "error": None,
        "backends": backends(),
        "supported_archs": supported_archs(),
        "recipes": {},
    }
    try:
        report["library_version"] = library().vcattn_version().decode()
        report["recipes"] = recipes()
    except Error as error:
        report["error"] = str(error)
    return report


def backend_in_use() -> dict[str, int]:
    """How many calls ran under each recipe, and how many PyTorch got back, with the reason."""
    return dict(calls)
