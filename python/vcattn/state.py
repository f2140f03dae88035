"""V-Smooth state: what one attention layer carries from one denoising step to the next."""

from __future__ import annotations

import itertools
import math
import weakref
from ctypes import byref, c_int32, c_size_t, c_void_p

from ._library import check, library
from .errors import InvalidArgumentError

#: The steps that take block means out: every one, or those of the window.
MEANS = ("all", "window")

_numbers = itertools.count(1)
_alive: weakref.WeakValueDictionary[int, VSmoothState] = weakref.WeakValueDictionary()


class VSmoothState:
    """Permutation, centroids and schedule of ONE layer and guidance branch.

    Without arguments it groups at every call, warm-started. With ``steps`` it follows a schedule:
    the grouping is recomputed every ``refresh`` of the first ``ceil(window * steps)`` steps, and
    later steps reuse the permutation. Means are taken out in all steps, or, as in the paper, in
    those of the window only (``means="window"``). Pass it to the calls of that layer and announce
    each step with ``begin_step``; not from two threads at once. ``vcattn.Schedule`` keeps these
    objects for a whole model.

    Raises:
        InvalidArgumentError: steps < 1, window outside [0, 1], refresh < 1, other means.
    """

    def __init__(
        self,
        steps: int | None = None,
        window: float = 0.25,
        refresh: int = 4,
        means: str = "all",
    ) -> None:
        if means not in MEANS:
            raise InvalidArgumentError(
                f"means: {means!r} was given (supported: {', '.join(MEANS)})", "means"
            )
        created = c_void_p()
        if steps is None:
            check(library().vcattn_state_create(byref(created)))
        else:
            created_as = (steps, window, refresh, means == "all", byref(created))
            check(library().vcattn_state_create_scheduled(*created_as))
        self.handle = created
        #: Share of this state's calls that group.
        self.groupings = 1.0 if steps is None else _groupings(steps, window, refresh)
        self.number = next(_numbers)  # what the PyTorch operator is given
        _alive[self.number] = self
        self._finalizer = weakref.finalize(self, library().vcattn_state_destroy, created)

    def begin_step(self, step: int) -> None:
        """Announces denoising step ``step`` (0-based)."""
        check(library().vcattn_state_begin_step(self.handle, step))

    def reset(self) -> None:
        """Forgets the grouping (a new clip); keeps the schedule."""
        check(library().vcattn_state_reset(self.handle))

    @property
    def action(self) -> tuple[bool, bool]:
        """Whether the next call regroups, and whether it takes means out."""
        regroup, demean = c_int32(), c_int32()
        check(library().vcattn_state_action(self.handle, byref(regroup), byref(demean)))
        return bool(regroup.value), bool(demean.value)

    def permutation(self, entry: int = 0, head: int = 0) -> list[int]:
        """Position -> key index of a (batch entry or segment, KV head); empty if none was made."""
        count = c_size_t()
        check(library().vcattn_state_permutation(self.handle, entry, head, None, byref(count)))
        keys = (c_int32 * count.value)()
        check(library().vcattn_state_permutation(self.handle, entry, head, keys, byref(count)))
        return list(keys)


def _groupings(steps: int, window: float, refresh: int) -> float:
    return len(range(0, math.ceil(window * steps - 1e-9), refresh)) / steps


def by_number(number: int) -> VSmoothState | None:
    """The living state of that number; None for 0."""
    return _alive[number] if number else None
