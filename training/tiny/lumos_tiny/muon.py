"""Muon for many small matrices: those of one shape are orthogonalised together, so that a GPU has few and larger kernels to start.

The updates are those of `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, which treats one matrix after the other: about thirty
kernels for each of a model's matrices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from .model import PRODUCTS

#: Coefficients of the quintic iteration (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/).
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5


def orthogonal(matrices: Tensor) -> Tensor:
    """Returns matrices `[count, rows, columns]` with singular values near one, in bfloat16 (or float32, see `PRODUCTS`)."""
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else PRODUCTS)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x


class BatchedMuon(torch.optim.Optimizer):
    """Muon with Nesterov momentum, whose updates are as large as AdamW's at the same learning rate."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            shapes[parameter.shape].append(parameter)
        groups = [{"params": parameters} for parameters in shapes.values()]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Updates all parameters from their gradients."""
        for group in self.param_groups:
            parameters, state = group["params"], self.state[group["params"][0]]
            gradients = torch.stack([parameter.grad for parameter in parameters])
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(gradients)
            state["momentum"].lerp_(gradients, 1 - group["momentum"])
            update = orthogonal(gradients.lerp(state["momentum"], group["momentum"]))
            size = -0.2 * max(gradients.shape[1:]) ** 0.5 * group["lr"]
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(update.to(gradients.dtype).unbind()), alpha=size)
