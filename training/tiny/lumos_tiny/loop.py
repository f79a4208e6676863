"""The training loop: AdamW, linear warm-up, a constant phase, cosine decay.

The schedule depends on steps, so that a run can be repeated; a limit in minutes is optional and ends it early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .examples import IGNORE
from .model import TinyLlama
from .muon import BatchedMuon

WARMUP = 100
SAVE_SECONDS = 60
#: Steps between two lines of output, at which the loss is read and checked.
PRINT_STEPS = 50


@dataclass(frozen=True)
class Schedule:
    """Length and learning rate of a run.

    `steps` is the number of batches, `minutes` an optional limit that shortens the schedule, `rate` the peak of the learning rate, and
    `hold` the share of the schedule before the decay. With `muon`, the layers' matrices are trained by Muon instead of AdamW. The minutes are
    counted from `started`, a time of `time.monotonic`, or from the first step.
    """

    steps: int
    minutes: float | None
    rate: float
    bf16: bool
    hold: float = 0.0
    muon: bool = False
    started: float | None = None


def optimizers_of(model: TinyLlama, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Returns AdamW for all parameters, or AdamW and Muon, whose updates are as large as AdamW's at the same learning rate."""
    orthogonal = [p for p in model.model.layers.parameters() if p.dim() > 1] if schedule.muon else []
    known = {id(p) for p in orthogonal}
    decayed = [p for p in model.parameters() if p.dim() > 1 and id(p) not in known]
    plain = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=schedule.rate, betas=(0.9, 0.98), fused=True)]
    if orthogonal:
        optimizers.append(BatchedMuon(orthogonal, lr=schedule.rate, weight_decay=0.05))
    return optimizers


def learning_rate(peak: float, step: int, progress: float, hold: float = 0.0) -> float:
    """Returns the learning rate: linear warm-up, the peak until `hold` of the schedule, then cosine decay to two percent of it."""
    decayed = 0.0 if progress <= hold else min(1.0, (progress - hold) / (1 - hold))
    return peak * min(1.0, (step + 1) / WARMUP) * (0.02 + 0.49 * (1 + math.cos(math.pi * decayed)))


def padded_loss(model: TinyLlama, ids: Tensor, targets: Tensor, bf16: bool) -> Tensor:
    """Returns the mean loss of the targets that are not IGNORE, of a batch with one sequence per row."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        asked = targets != IGNORE
        logits = model.logits(model.hidden(ids, asked))
    return F.cross_entropy(logits.float(), targets[asked])


def fit(
    model: TinyLlama,
    batch: Callable[[float], tuple[Tensor, ...]],
    schedule: Schedule,
    save: Callable[[], None],
    loss_of: Callable[..., Tensor] | None = None,
) -> None:
    """Trains a model on the batches that `batch` returns for a progress from 0 to 1. Saves it every `SAVE_SECONDS` and at the end.

    `loss_of` takes the model and the tensors of a batch, token ids first; default: `padded_loss`. If the loss becomes infinite, the run continues with
    the weights and half the learning rate of the last line of output.
    """
    loss_of = loss_of or partial(padded_loss, bf16=schedule.bf16)
    optimizers = optimizers_of(model, schedule)
    begun = time.monotonic()
    end = None if schedule.minutes is None else (schedule.started or begun) + 60 * schedule.minutes
    saved, trained, seen, peak = begun, 0, 0, schedule.rate
    total, kept = None, [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(schedule.steps):
        now = time.monotonic()
        progress = step / schedule.steps
        if end is not None:
            progress = max(progress, (now - begun) / (end - begun) if end > begun else 1)
        if progress >= 1:
            break
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(peak, step, progress, schedule.hold)
        tensors = batch(progress)
        loss = loss_of(model, *tensors)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        trained, seen = step + 1, seen + tensors[0].numel()
        total = loss.detach() if total is None else total + loss.detach()
        if step % PRINT_STEPS == PRINT_STEPS - 1:
            mean, total = total.item() / PRINT_STEPS, None
            passed = time.monotonic() - begun
            print(f"step {step + 1} loss {mean:.4f} minutes {passed / 60:.1f} tokens/s {seen / passed:.0f}", flush=True)
            finite = all(bool(torch.isfinite(p).all()) for p in model.parameters()) if math.isfinite(mean) else False
            with torch.no_grad():
                for parameter, copy in zip(model.parameters(), kept, strict=True):
                    copy.copy_(parameter) if finite else parameter.copy_(copy)
            if not finite:
                peak /= 2
                optimizers = optimizers_of(model, schedule)
                print(f"step {step + 1}: infinite loss; continuing from step {step + 1 - PRINT_STEPS} at half the rate", flush=True)
            elif time.monotonic() - saved >= SAVE_SECONDS:
                saved = time.monotonic()
                save()
    if not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        with torch.no_grad():
            for parameter, copy in zip(model.parameters(), kept, strict=True):
                parameter.copy_(copy)
    save()
    passed = time.monotonic() - begun
    print(f"done after {trained} steps, {seen} tokens, {passed / 60:.1f} minutes, {seen / passed:.0f} tokens/s", flush=True)
