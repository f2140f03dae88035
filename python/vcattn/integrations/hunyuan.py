"""HunyuanVideo-1.5 in diffusers: padding by key lengths.

The model orders its text tokens valid first and joins them behind the video tokens, so padding is
a suffix of the keys; diffusers turns it into a dense mask of S x S per block (12.5 GB at 720p).
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models import attention_dispatch as dispatch
from diffusers.models.transformers import transformer_hunyuan_video15 as model_file
from torch import Tensor, nn

from .._torch_attention import autocast
from ._engine import backend_recipes

Base = model_file.HunyuanVideo15AttnProcessor2_0


class KeyLengthProcessor(Base):  # type: ignore[misc,valid-type]
    """diffusers' own processor with its dispatch call and mask replaced: projections, norms, rope
    and the order of the streams stay the model's. It is diffusers' own again under any backend but
    vcattn's, and under context parallelism."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Any:
        recipe = _recipe_of(self._attention_backend)
        if recipe is None or self._parallel_config is not None:
            return super().__call__(
                attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb
            )
        query, key, value = self._projected(attn, hidden_states, image_rotary_emb)
        if encoder_hidden_states is not None:
            text = self._projected_text(attn, encoder_hidden_states)
            query, key, value = (
                torch.cat(pair, dim=1) for pair in zip((query, key, value), text, strict=True)
            )
        lengths = None if attention_mask is None else _lengths(attention_mask, key.shape[1])
        query, key, value = autocast(query, key, value)
        out = torch.ops.vcattn.attention(
            query, key, value, None, lengths, layout="BSHD", recipe=recipe, fallback=True
        )[0]
        out = out.flatten(2, 3)
        video, text_out = out, encoder_hidden_states
        if encoder_hidden_states is not None:
            tokens = encoder_hidden_states.shape[1]
            video, text_out = out[:, :-tokens], out[:, -tokens:]
            if getattr(attn, "to_out", None) is not None:
                video = attn.to_out[1](attn.to_out[0](video))
            if getattr(attn, "to_add_out", None) is not None:
                text_out = attn.to_add_out(text_out)
        return video, text_out

    @staticmethod
    def _projected(attn: Any, hidden: Tensor, rotary: Any) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            layer(hidden).unflatten(2, (attn.heads, -1))
            for layer in (attn.to_q, attn.to_k, attn.to_v)
        )
        query, key = attn.norm_q(query), attn.norm_k(key)
        if rotary is not None:
            from diffusers.models.embeddings import apply_rotary_emb

            query = apply_rotary_emb(query, rotary, sequence_dim=1)
            key = apply_rotary_emb(key, rotary, sequence_dim=1)
        return query, key, value

    @staticmethod
    def _projected_text(attn: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            layer(hidden).unflatten(2, (attn.heads, -1))
            for layer in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        )
        if attn.norm_added_q is not None:
            query = attn.norm_added_q(query)
        if attn.norm_added_k is not None:
            key = attn.norm_added_k(key)
        return query, key, value


def _recipe_of(backend: Any) -> str | None:
    """The recipe of a vcattn backend, None for others; None means diffusers' active one."""
    if backend is None:
        backend = dispatch._AttentionBackendRegistry.get_active_backend()[0]
    return backend_recipes().get(getattr(backend, "value", backend))


def _lengths(text_mask: Tensor, keys: int) -> Tensor:
    """Valid keys per batch entry, int32. The mask covers the text at the end of the keys."""
    mask = text_mask.bool()
    torch._assert_async(
        torch.logical_or(mask[:, :-1], ~mask[:, 1:]).all(),
        "vcattn: the text mask is not valid-tokens-first",
    )
    return (keys - mask.shape[1] + mask.sum(1)).to(torch.int32)


def replace_processors(model: nn.Module) -> int:
    """See ``vcattn.integrations.diffusers.use_key_lengths``."""
    replaced = 0
    for module in model.modules():
        old: Any = getattr(module, "processor", None)
        if type(old) is Base:
            module.processor = KeyLengthProcessor()
            module.processor._attention_backend = old._attention_backend
            module.processor._parallel_config = old._parallel_config
            replaced += 1
    return replaced
