"""ComfyUI custom node: copy or link this folder into ComfyUI/custom_nodes (needs vcattn).

The node "vcattn attention" patches a video model's self-attention; docs/integrations.md says how.
"""

from __future__ import annotations

from typing import Any

from vcattn import recipes
from vcattn.integrations.comfyui import Settings, patch_model


class VcattnAttention:
    """MODEL -> MODEL."""

    CATEGORY = "model_patches/attention"
    DESCRIPTION = "8 or 4-bit attention for video models; the V-Smooth schedule follows the sigmas."
    FUNCTION = "patch"
    RETURN_TYPES = ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {
                "model": ("MODEL",),
                "recipe": (list(recipes()), {"default": "vc8"}),
                "window": ("FLOAT", {"default": 0.25, "min": 0.0, "max": 1.0, "step": 0.05}),
                "refresh": ("INT", {"default": 4, "min": 1, "max": 100}),
                "exact_blocks": ("STRING", {"default": "", "tooltip": "e.g. 0, 47-49"}),
                "exact_steps": ("INT", {"default": 0, "min": 0, "max": 1000}),
                "short": (
                    ["torch", "vcattn"],
                    {"default": "torch", "tooltip": "who computes what PyTorch is faster at"},
                ),
            }
        }

    def patch(self, model: Any, **settings: Any) -> tuple[Any]:
        return (patch_model(model, Settings(**settings)),)


NODE_CLASS_MAPPINGS = {"VcattnAttention": VcattnAttention}
NODE_DISPLAY_NAME_MAPPINGS = {"VcattnAttention": "vcattn attention"}
