"""What the report compares: a recipe under a V-Smooth schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InvalidArgumentError
from ..schedule import Schedule
from ..state import VSmoothState

REFRESH = 4
WINDOW = 0.25


class UniformSchedule(Schedule):
    """As many steps with means as the default, but spread evenly: the paper's counter-example."""

    def _make_state(self) -> VSmoothState:
        # The first half of these steps takes means out, the second does not.
        return VSmoothState(2 * self.steps, 0.5, self.refresh)

    def _state_step(self) -> int:
        spacing = self.steps / math.ceil(self.window * self.steps)
        chosen = [int(index * spacing) for index in range(math.ceil(self.window * self.steps))]
        if self.current_step in chosen:
            return chosen.index(self.current_step)
        return self.steps + self.current_step


@dataclass(frozen=True)
class Variant:
    """``text`` is a recipe, with "@uniform" or "@all" for means in a uniform quarter of the steps
    or in all of them; the default is the first quarter."""

    text: str

    @property
    def recipe(self) -> str:
        return self.text.partition("@")[0]

    def schedule(self, steps: int) -> Schedule:
        when = self.text.partition("@")[2] or "first"
        if when == "uniform":
            return UniformSchedule(steps, recipe=self.recipe, window=WINDOW, refresh=1)
        windows = {"first": WINDOW, "all": 1.0}
        if when not in windows:
            raise InvalidArgumentError(
                f"variant: {self.text!r} (supported: RECIPE, RECIPE@uniform, RECIPE@all)", "variant"
            )
        return Schedule(steps, recipe=self.recipe, window=windows[when], refresh=REFRESH)
