"""A bare denoising loop: one Schedule for all layers, 16 bits in the last block."""

import torch
import torch.nn.functional as F
import vcattn

LAYERS, STEPS = 3, 8


def main() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(128, 3 * 128) / 12 for _ in range(LAYERS)]
    noise = torch.randn(1, 600, 128)

    def model(x: torch.Tensor, attention) -> torch.Tensor:
        for weight in weights:
            q, k, v = (x @ weight).unflatten(2, (3, 1, 128)).permute(2, 0, 3, 1, 4)
            x = x + attention(q, k, v).transpose(1, 2).flatten(2)
        return F.layer_norm(x, (128,))

    exact, low = noise, noise
    rules = [vcattn.Rule("torch", layers=[-1])]
    with torch.no_grad(), vcattn.Schedule(steps=STEPS, layers=LAYERS, rules=rules) as schedule:
        for t in schedule.track(torch.linspace(1, 0, STEPS)):
            exact = exact - 0.1 * t * model(exact, F.scaled_dot_product_attention)
            low = low - 0.1 * t * model(low, vcattn.attention)
    print(f"relative distance {float((low - exact).norm() / exact.norm()):.5f}")
    print(vcattn.backend_in_use())


if __name__ == "__main__":
    main()
