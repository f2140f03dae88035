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
    """A quarter of the steps, spread evenly, groups and takes means out: the paper's
    counter-example to the first quarter."""

    def new_state(self) -> VSmoothState:
        # The first half of these steps takes means out, the second does not.
        return VSmoothState(2 * self.steps, 0.5, self.refresh, "window")

    def _state_step(self) -> int:
        spacing = self.steps / math.ceil(self.window * self.steps)
        chosen = [int(index * spacing) for index in range(math.ceil(self.window * self.steps))]
        step = super()._state_step()
        return chosen.index(step) if step in chosen else self.steps + step


@dataclass(frozen=True)
class Variant:
    """``text`` is a recipe under the default schedule, or with "@first", "@uniform" or "@all" for
    means and grouping in the first quarter of the steps (the paper's), in a quarter spread evenly,
    or in all of them."""

    text: str

    @property
    def recipe(self) -> str:
        return self.text.partition("@")[0]

    def schedule(self, steps: int) -> Schedule:
        when = self.text.partition("@")[2]
        if when == "uniform":
            return UniformSchedule(steps, recipe=self.recipe, window=WINDOW, refresh=1)
        known = {"": (WINDOW, "all"), "first": (WINDOW, "window"), "all": (1.0, "all")}
        if when not in known:
            forms = ", ".join(f"RECIPE@{name}" for name in ("first", "uniform", "all"))
            raise InvalidArgumentError(
                f"variant: {self.text!r} (supported: RECIPE, {forms})", "variant"
            )
        window, means = known[when]
        return Schedule(steps, recipe=self.recipe, window=window, refresh=REFRESH, means=means)
