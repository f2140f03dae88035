"""The small trained video transformer that the report runs on, from a folder given by the user."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import FileError

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ClipShape:
    frames: int
    height: int
    width: int
    steps: int


class VideoModel:
    """A folder with ``model.py`` (``VideoDiT``, ``generate``) and ``weights-*.safetensors``.

    Raises:
        FileError: naming what the folder lacks.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        from safetensors.torch import load_file

        source, weights = folder / "model.py", sorted(folder.glob("weights-*.safetensors"))
        if not source.is_file() or not weights:
            raise FileError(
                f"{folder}: model.py and weights-*.safetensors are needed (the videodit model)",
                str(folder),
            )
        spec = importlib.util.spec_from_file_location("vcattn_report_model", source)
        if spec is None or spec.loader is None:
            raise FileError(f"{source}: cannot be imported", str(source))
        self._module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)
        tensors: dict[str, Tensor] = {}
        for file in weights:
            tensors.update(load_file(file))
        self.network = self._module.VideoDiT()
        self.network.load_state_dict(tensors)
        self.network = self.network.float().to(device).eval()
        self.layers = len(self.network.blocks)

    def generate(
        self, shape: ClipShape, label: int, attention: Attention, on_step: Callable[[int], None]
    ) -> Tensor:
        """A clip (1, frames, height, width, 3) in [-1, 1]; the seed is the label."""
        with torch.no_grad():
            clip: Tensor = self._module.generate(
                self.network, label, shape.frames, shape.height, shape.width, steps=shape.steps,
                seed=label, attention=attention, on_step=lambda index, count: on_step(index),
            )  # fmt: skip
        return clip
