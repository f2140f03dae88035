"""A Wan2.2 clip with 8-bit attention in diffusers (needs a GPU and the model's weights).

Usage: wan22.py MODEL_FOLDER_OR_NAME "a prompt" clip.mp4
"""

import sys

import torch
import vcattn
from diffusers import WanPipeline
from diffusers.utils import export_to_video
from vcattn.integrations.diffusers import register

STEPS = 40


def main() -> None:
    model, prompt, path = sys.argv[1:4]
    pipe = WanPipeline.from_pretrained(model, torch_dtype=torch.bfloat16).to("cuda")
    register()
    for transformer in filter(None, (pipe.transformer, pipe.transformer_2)):
        transformer.set_attention_backend("vcattn")
    with vcattn.Schedule(steps=STEPS) as schedule:
        clip = pipe(prompt, num_inference_steps=STEPS, callback_on_step_end=schedule.callback)
    export_to_video(clip.frames[0], path, fps=16)
    print(vcattn.backend_in_use())


if __name__ == "__main__":
    main()
