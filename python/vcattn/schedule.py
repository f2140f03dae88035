"""The V-Smooth schedule of a whole model: one object for all layers, branches and steps."""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .errors import InvalidArgumentError
from .recipe import DEFAULT, Recipe, handle
from .state import VSmoothState

#: In place of a recipe: PyTorch computes the call, in the tensors' own precision.
TORCH = "torch"
#: The active schedule's choice, without one the default; and PyTorch where that is faster.
AUTO = "auto"
#: Who computes calls under AUTO that PyTorch is faster at.
SHORT = (TORCH, "vcattn")

T = TypeVar("T")
_active: contextvars.ContextVar[Schedule | None] = contextvars.ContextVar("vcattn", default=None)


def active() -> Schedule | None:
    """The schedule whose ``with`` block is running in this thread."""
    return _active.get()


class Choice(NamedTuple):
    """How one call runs."""

    recipe: str
    state: VSmoothState | None


def resolve(
    recipe: str, state: VSmoothState | None, queries: int, keys: int, shards: int = 1
) -> Choice:
    """The call's own recipe and state, else the active schedule's, else the default. A call with
    both of its own is none of the schedule's."""
    schedule = _active.get()
    own = "" if recipe == AUTO else recipe
    if schedule is None or (own and state is not None):
        return Choice(own or DEFAULT, state)
    choice = schedule.choose(queries, keys, shards)
    return Choice(own or choice.recipe, state or choice.state)


def yields(recipe: str, queries: int, keys: int) -> bool:
    """Whether a call under this recipe goes to PyTorch where that is faster."""
    schedule = _active.get()
    if schedule is None or recipe != AUTO:
        return recipe == AUTO
    return schedule.short == TORCH and queries == keys  # it names the recipe of cross-attention


@dataclass(frozen=True)
class Rule:
    """Another recipe for some self-attention layers and steps; None means all of them.

    Negative layers count from the last and need ``Schedule(layers=...)``; negative steps count
    from the last. For example ``Rule("torch", layers=[-1])`` keeps 16 bits in the last block and
    ``Rule("torch", steps=range(2))`` in the first two steps.
    """

    recipe: str | Recipe
    layers: Collection[int] | None = None
    steps: Collection[int] | None = None


class Schedule:
    """When each attention call of a denoising loop groups, takes means out, and in which recipe.

    Calls are told apart by their order within a step, so layers and guidance branches that run one
    after the other get a state each without being named; a batched guidance is told apart by its
    batch entries. Self-attention (Sq = Skv) is scheduled; cross-attention, whose few keys do not
    pay, goes to PyTorch unless ``cross`` names a recipe. Use::

        with vcattn.Schedule(steps=40) as schedule:
            pipe(..., num_inference_steps=40, callback_on_step_end=schedule.callback)

        with vcattn.Schedule(steps=len(timesteps)) as schedule:
            for t in schedule.track(timesteps):
                ...

    Where another model takes over, as in Wan2.2, a loop calls ``switch_model``. Entering starts a
    new clip: step 0, no groupings. Leaving, also by an exception, restores what was active before.
    One schedule is used by one thread at a time.

    Args:
        steps: denoising steps of the loop.
        window: fraction of the steps, from the first, in which tokens are regrouped.
        refresh: within the window the grouping is recomputed every so many steps.
        means: "all" steps take block means out, or those of the "window" only, as in the paper.
        recipe: of self-attention where no rule says otherwise.
        rules: the first that matches wins.
        layers: self-attention calls of one forward pass; needed for negative layers and, where
            guidance runs the model twice a step, for rules to see the second pass's layers.
        cross: recipe of cross-attention, or "torch".
        short: who computes self-attention on CUDA tensors that PyTorch is estimated to be faster
            at, where the call leaves that open (``sdpa`` without a recipe, the backend "vcattn"):
            "torch", or "vcattn", which keeps it.

    Raises:
        InvalidArgumentError: as VSmoothState, for unknown recipes, another ``short`` and for
            negative layers without ``layers``.
    """

    def __init__(
        self,
        steps: int,
        *,
        window: float = 0.25,
        refresh: int = 4,
        means: str = "all",
        recipe: str | Recipe = DEFAULT,
        rules: Iterable[Rule] = (),
        layers: int | None = None,
        cross: str | Recipe = TORCH,
        short: str = TORCH,
    ) -> None:
        if short not in SHORT:
            raise InvalidArgumentError(
                f"short: {short!r} was given (supported: {', '.join(SHORT)})", "short"
            )
        self.short = short
        self.steps, self.window, self.refresh, self.means = steps, window, refresh, means
        self.layers = layers
        self.new_state()  # checks these
        self.recipe, self.cross = _checked(recipe), _checked(cross)
        self.rules = [self._resolved(rule) for rule in rules]
        self.current_step = 0
        self._model, self._first_step = 0, 0  # which model runs, and since which step
        self._calls = 0  # of self-attention, in this step
        self._states: dict[Hashable, VSmoothState] = {}
        self._tokens: list[contextvars.Token[Schedule | None]] = []

    def new_state(self) -> VSmoothState:
        """A state as this schedule's layers have."""
        return VSmoothState(self.steps, self.window, self.refresh, self.means)

    def _state_step(self) -> int:
        """The step that states are told."""
        return self.current_step - self._first_step

    def _resolved(self, rule: Rule) -> Rule:
        """The rule with its recipe checked and indices counted from the first."""
        layers, steps = rule.layers, rule.steps
        if layers is not None:
            if self.layers is None and any(layer < 0 for layer in layers):
                raise InvalidArgumentError(
                    "rules: negative layers need Schedule(layers=...)", "rules"
                )
            layers = _from_first(layers, self.layers, "layers")
        if steps is not None:
            steps = _from_first(steps, self.steps, "steps")
        return Rule(_checked(rule.recipe), layers, steps)

    def __enter__(self) -> Schedule:
        self.restart()
        self._tokens.append(_active.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        _active.reset(self._tokens.pop())

    def restart(self) -> None:
        """A new clip: step 0, no groupings."""
        for state in self._states.values():
            state.reset()
        self._model = self._first_step = 0
        self.step(0)

    def step(self, index: int) -> None:
        """Announces denoising step ``index`` (0-based) before its forward passes."""
        if not 0 <= index < self.steps:
            raise InvalidArgumentError(
                f"step: {index} was given (supported: 0 to {self.steps - 1})", "step"
            )
        if index < self._first_step:
            self._model, self._first_step = 0, 0
        self.current_step = index
        self._calls = 0

    def switch_model(self) -> None:
        """Announces, after its step, that another model takes over, as Wan2.2's second expert does:
        its layers have states of their own, whose window begins here."""
        self._model += 1
        self._first_step = self.current_step

    def track(self, timesteps: Iterable[T]) -> Iterator[T]:
        """Yields the timesteps, announcing each."""
        for index, timestep in enumerate(timesteps):
            self.step(index)
            yield timestep

    def callback(
        self, pipe: Any, index: int, timestep: Any, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """``callback_on_step_end`` of a diffusers pipeline; sees Wan2.2's experts change."""
        del timestep
        if index + 1 < self.steps:
            self.step(index + 1)
            if _second_expert_begins(pipe, index + 1):
                self.switch_model()
        return kwargs

    def choose(self, queries: int, keys: int, shards: int = 1) -> Choice:
        """How the next call runs, given its token counts; counts it.

        ``shards`` calls make up one layer where a ring passes keys around.
        """
        if queries != keys and shards == 1:
            return Choice(self.cross, None)
        call = self._calls
        self._calls += 1
        layer = call // shards
        return self.choose_for(layer if self.layers is None else layer % self.layers, call)

    def choose_for(self, layer: int, key: Hashable) -> Choice:
        """How a self-attention call runs where its layer is known; ``key`` tells its state apart
        from those of other layers and guidance branches."""
        recipe = self.recipe_at(layer)
        if recipe == TORCH:
            return Choice(recipe, None)
        key = key if self._model == 0 else (self._model, key)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = self.new_state()
        state.begin_step(self._state_step())
        return Choice(recipe, state)

    def recipe_at(self, layer: int) -> str:
        """The recipe of a self-attention layer in the current step."""
        for rule in self.rules:
            in_layers = rule.layers is None or layer in rule.layers
            if in_layers and (rule.steps is None or self.current_step in rule.steps):
                return str(rule.recipe)
        return self.recipe

    @property
    def states(self) -> dict[Hashable, VSmoothState]:
        """The states made so far, by the number of the call within a step or the caller's key; of
        models switched to by (number of the switch, key)."""
        return dict(self._states)


def _second_expert_begins(pipe: Any, step: int) -> bool:
    """Whether a pipeline of two experts, which ``boundary_ratio`` divides, changes over."""
    ratio = getattr(getattr(pipe, "config", None), "boundary_ratio", None)
    if ratio is None or step >= len(pipe.scheduler.timesteps):
        return False
    boundary = ratio * pipe.scheduler.config.num_train_timesteps
    before, now = (float(timestep) for timestep in pipe.scheduler.timesteps[step - 1 : step + 1])
    return before >= boundary > now


def _checked(recipe: str | Recipe) -> str:
    spec = str(recipe)
    if spec != TORCH:
        handle(spec)
    return spec


def _from_first(indices: Collection[int], count: int | None, name: str) -> frozenset[int]:
    if count is None:
        return frozenset(indices)
    outside = [index for index in indices if not -count <= index < count]
    if outside:
        raise InvalidArgumentError(
            f"rules: {name} {outside} are outside the schedule's {count}", "rules"
        )
    return frozenset(index % count for index in indices)
