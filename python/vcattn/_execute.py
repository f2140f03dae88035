"""Running, checking and explaining a call that is already made of views."""

from __future__ import annotations

import ctypes
from collections import Counter

from ._call import Inputs, make_arguments
from ._library import BACKENDS, Allocator, check, library, raise_last_error
from ._views import View
from .errors import Error, InvalidArgumentError
from .recipe import handle
from .state import VSmoothState

#: How often each recipe ran, and how often a call was handed back to PyTorch and why.
calls: Counter[str] = Counter()


def _backend(name: str) -> int:
    if name not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise InvalidArgumentError(f"backend: {name!r} was given (supported: {known})", "backend")
    return BACKENDS[name]


def run(
    inputs: Inputs,
    out: View,
    lse: View | None,
    recipe: str,
    backend: str,
    state: VSmoothState | None,
    stream: int = 0,
    allocator: Allocator | None = None,
) -> None:
    """Writes ``out`` and ``lse``."""
    arguments = make_arguments(inputs, out, lse, stream, allocator)
    status = library().vcattn_attention(
        ctypes.byref(arguments), handle(recipe), _backend(backend), state and state.handle
    )
    if status != 0:
        raise_last_error(status)
    calls[recipe] += 1


def explain(inputs: Inputs, recipe: str, backend: str) -> str:
    """The kernel that would run and what it does, one sentence a line."""
    arguments = make_arguments(inputs, inputs.q, None)
    kernel, text = ctypes.c_char_p(), ctypes.c_char_p()
    check(
        library().vcattn_explain(
            ctypes.byref(arguments),
            handle(recipe),
            _backend(backend),
            ctypes.byref(kernel),
            ctypes.byref(text),
        )
    )
    return f"Kernel {(kernel.value or b'').decode()}.\n{(text.value or b'').decode()}"


def why_not(inputs: Inputs, recipe: str, backend: str) -> str:
    """Empty if the call can run, else the reason why not."""
    try:
        arguments = make_arguments(inputs, inputs.q, None)
        check(library().vcattn_can_use(ctypes.byref(arguments), handle(recipe), _backend(backend)))
    except Error as error:
        return str(error)
    return ""
