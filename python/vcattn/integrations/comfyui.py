"""vcattn as the attention of a ComfyUI model: an ``optimized_attention_override``.

ComfyUI calls it in place of every attention function of the patched model, with that function
first; a call that vcattn should not take goes to the override that was there before, or to the
function. Nothing of ComfyUI is imported or replaced, and unpatched models are not touched.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._attention import attention, why_not
from .._short import faster_in_torch
from .._torch_attention import untraced
from .._torch_op import handed_back
from ..schedule import TORCH, Rule, Schedule
from ..state import VSmoothState

log = logging.getLogger("vcattn")


@dataclass(frozen=True)
class Settings:
    """What the node offers.

    ``exact_blocks`` ("0, 47-49") and the first ``exact_steps`` steps keep the model's own
    attention, and so do, if ``short`` is "torch", dense calls on CUDA tensors that PyTorch's is
    estimated to be faster at; "vcattn" takes them.
    """

    recipe: str = "vc8"
    window: float = 0.25
    refresh: int = 4
    exact_blocks: str = ""
    exact_steps: int = 0
    short: str = TORCH

    @property
    def blocks(self) -> frozenset[int]:
        found: set[int] = set()
        for first, last in re.findall(r"(\d+)(?:\s*-\s*(\d+))?", self.exact_blocks):
            found.update(range(int(first), int(last or first) + 1))
        return frozenset(found)


class AttentionOverride:
    """One patched model's attention with its schedule, rebuilt for every sampling run."""

    def __init__(self, settings: Settings, previous: Callable[..., Any] | None = None) -> None:
        self.settings, self.previous = settings, previous
        self._run: tuple[float, ...] | None = None
        self._schedule = self._make_schedule(1)
        self._logged: set[str] = set()

    def __call__(
        self,
        func: Callable[..., Any],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: int,
        mask: Tensor | None = None,
        attn_precision: Any = None,
        skip_reshape: bool = False,
        skip_output_reshape: bool = False,
        **kwargs: Any,
    ) -> Any:
        """q, k and v are (B, H, S, d) if ``skip_reshape``, else (B, S, H * d).

        Under torch.compile a graph break: the schedule has to be asked in every step.
        """
        run = self._attend
        arguments = (func, q, k, v, heads, mask, attn_precision, skip_reshape, skip_output_reshape)
        if torch.compiler.is_compiling():
            return untraced(run, *arguments, kwargs)
        return run(*arguments, kwargs)

    def _attend(
        self,
        func: Callable[..., Any],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: int,
        mask: Tensor | None,
        attn_precision: Any,
        skip_reshape: bool,
        skip_output_reshape: bool,
        kwargs: dict[str, Any],
    ) -> Any:
        options = kwargs.get("transformer_options") or {}
        tokens = 2 if skip_reshape else 1
        call: dict[str, Any] = {
            "scale": kwargs.get("scale"),
            "mask": wide_mask(mask),
            "layout": "BHSD" if skip_reshape else "BSHD",
        }
        tensors = (q, k, v) if skip_reshape else split_heads(q, k, v, heads)
        choice = self._schedule_at(options).choose_for(
            *self._layer_and_key(options, q.shape[tokens])
        )
        # Cross-attention has no tokens of its own to group from step to step.
        state = choice.state if q.shape[tokens] == k.shape[tokens] else None
        reason = self._refusal(tensors, call, choice.recipe, state, attn_precision, kwargs)
        if reason:
            self._log_once(f"{tuple(q.shape)}: left to the model's attention: {reason}")
            given = {
                "mask": mask, "attn_precision": attn_precision, "skip_reshape": skip_reshape,
                "skip_output_reshape": skip_output_reshape, **kwargs,
            }  # fmt: skip
            if self.previous is not None:
                return self.previous(func, q, k, v, heads, **given)
            return func(q, k, v, heads, **given)
        out = attention(*tensors, recipe=choice.recipe, state=state, **call)
        if skip_output_reshape:
            return out if skip_reshape else out.transpose(1, 2)
        return (out.transpose(1, 2) if skip_reshape else out).flatten(2)

    def _refusal(
        self, tensors: tuple[Tensor, ...], call: dict[str, Any], recipe: str,
        state: VSmoothState | None, precision: Any, kwargs: dict[str, Any],
    ) -> str:  # fmt: skip
        if recipe == TORCH:
            return "exact block or step"
        if kwargs.get("low_precision_attention", True) is False:
            return "the model asks for full precision"
        if str(precision) == "torch.float32":
            return "attn_precision is float32"
        reason = why_not(*tensors, recipe=recipe, **call)
        if reason:
            handed_back(reason)
            return reason
        q, k, _ = tensors
        if self.settings.short != TORCH or call["mask"] is not None or not q.is_cuda:
            return ""
        return faster_in_torch(q.shape, k.shape, call["layout"], q.dtype == torch.float32, state)

    def _layer_and_key(self, options: dict[str, Any], tokens: int) -> tuple[int, Any]:
        """The block and what tells its state apart: conditioning branch and token count."""
        block = options.get("block_index")
        branch = tuple(options.get("uuids") or options.get("cond_or_uncond") or ())
        if block is None:
            self._log_once("this model does not report block indices: exact_blocks is ignored")
        return (-1 if block is None else int(block)), (block, branch, tokens)

    def _schedule_at(self, options: dict[str, Any]) -> Schedule:
        """The run's schedule at the current sigma; a new list of sigmas or a step back is a new
        run. Sampler evaluations between two sigmas belong to the step that they lie in."""
        sigmas, current = options.get("sample_sigmas"), options.get("sigmas")
        if sigmas is None or current is None:
            return self._schedule
        run = tuple(float(sigma) for sigma in sigmas)
        if run != self._run:
            self._run, self._schedule = run, self._make_schedule(max(len(run) - 1, 1))
        sigma = float(current.flatten()[0])
        reached = sum(1 for limit in run if limit >= sigma * (1 - 1e-5)) - 1
        step = min(max(reached, 0), self._schedule.steps - 1)
        if step < self._schedule.current_step:
            self._schedule.restart()
        if step != self._schedule.current_step:
            self._schedule.step(step)
        return self._schedule

    def _make_schedule(self, steps: int) -> Schedule:
        settings = self.settings
        rules = [
            Rule(TORCH, layers=settings.blocks),
            Rule(TORCH, steps=range(min(settings.exact_steps, steps))),
        ]
        return Schedule(
            steps,
            window=settings.window,
            refresh=settings.refresh,
            recipe=settings.recipe,
            rules=rules,
            short=settings.short,
        )

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.info("vcattn: %s", message)


def split_heads(q: Tensor, k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, S, H * d) -> (B, S, H, d) views; k and v may have fewer heads of q's size."""
    dim = q.shape[-1] // heads
    return q.unflatten(2, (heads, dim)), k.unflatten(2, (-1, dim)), v.unflatten(2, (-1, dim))


def wide_mask(mask: Tensor | None) -> Tensor | None:
    """ComfyUI's masks as (B or 1, H or 1, Sq or 1, Skv): 3 axes are (B, Sq, Skv)."""
    if mask is None or mask.dim() in (2, 4):
        return mask
    return mask[:, None]


def patch_model(model: Any, settings: Settings) -> Any:
    """A clone of a ComfyUI ModelPatcher whose attention is vcattn's; overrides that are there
    already get what vcattn leaves."""
    patched = model.clone()
    options = dict(patched.model_options.get("transformer_options", {}))
    previous = options.get("optimized_attention_override")
    options["optimized_attention_override"] = AttentionOverride(settings, previous)
    patched.model_options["transformer_options"] = options
    return patched
