"""Distances between attention outputs and between clips."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rel_l2(out: Tensor, expected: Tensor) -> float:
    """|out - expected| / |expected| over all elements."""
    return float((out.double() - expected.double()).norm() / expected.double().norm())


def psnr(clip: Tensor, reference: Tensor) -> float:
    """In dB, for values in [-1, 1]; at most 100, which equal clips have."""
    error = (clip.double() - reference.double()).square().mean()
    return float(10 * torch.log10(4 / error.clamp_min(4e-10)))


def ssim(clip: Tensor, reference: Tensor) -> float:
    """Structural similarity of (1, frames, height, width, 3) clips in [-1, 1]: windows of 7 x 7,
    constants 0.01 and 0.03 of the range (Wang et al. 2004, uniform window)."""
    a, b = (x[0].permute(0, 3, 1, 2).double() for x in (clip, reference))
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2

    def mean(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 7, 1)

    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    covariance = mean(a * b) - mean_a * mean_b
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return float((luminance * (2 * covariance + c2) / (var_a + var_b + c2)).mean())
