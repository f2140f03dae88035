"""vcattn: low-bit attention for video diffusion transformers, without training.

``attention`` computes softmax(q kᵀ) v in 8 or 4 bits, ``sdpa`` has the signature of PyTorch's,
``Schedule`` carries V-Smooth through a denoising loop. PyTorch is used where it is installed and
never needed.
"""

from __future__ import annotations

from ._attention import attention, can_use, explain, why_not
from ._info import backend_in_use, backends, info, is_available, supported_archs
from ._sdpa import sdpa
from .errors import (
    DeviceError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    LibraryLoadError,
    OutOfMemoryError,
    UnsupportedError,
)
from .recipe import Recipe, recipes
from .schedule import Rule, Schedule
from .state import VSmoothState

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "Error",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "LibraryLoadError",
    "OutOfMemoryError",
    "Recipe",
    "Rule",
    "Schedule",
    "UnsupportedError",
    "VSmoothState",
    "__version__",
    "attention",
    "backend_in_use",
    "backends",
    "can_use",
    "explain",
    "info",
    "is_available",
    "recipes",
    "sdpa",
    "supported_archs",
    "why_not",
]
