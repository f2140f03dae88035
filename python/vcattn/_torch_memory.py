"""The library's workspace taken from PyTorch's allocator, so that it shows in its statistics,
lands in CUDA graphs' pools and is reused across streams as PyTorch does it."""

from __future__ import annotations

import torch

from ._library import Allocate, Allocator, Deallocate

_held: dict[int, torch.Tensor] = {}


def _allocate(context: int | None, size: int, stream: int | None) -> int | None:
    del context, stream  # the current stream, which is the call's
    try:
        block = torch.empty(max(size, 1), dtype=torch.uint8, device=torch.cuda.current_device())
    except torch.OutOfMemoryError:
        return None  # the library reports it with what it was for
    _held[block.data_ptr()] = block
    return block.data_ptr()


def _deallocate(context: int | None, pointer: int | None, stream: int | None) -> None:
    del context, stream
    if pointer is not None:
        del _held[pointer]


ALLOCATOR = Allocator(Allocate(_allocate), Deallocate(_deallocate), None)
