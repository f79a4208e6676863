"""Training steps on a GPU: padded batches of sequences of similar length, attention of PyTorch.

The same code runs on a CPU, where it serves for tests; `packed.py` is several times faster there. Nothing is compiled, and no step waits for
the GPU, which therefore always has work queued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .examples import IGNORE
from .loop import Schedule, fit
from .model import TinyLlama
from .store import Store

#: The type of products: bfloat16 where the GPU or the processor multiplies it.
PRODUCTS = torch.bfloat16 if torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def moved(batch: tuple[np.ndarray, np.ndarray], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a batch on a device: ids `[rows, width]`, and the positions that are learned in the flattened ids with their targets."""
    ids, targets = batch
    flat = targets.reshape(-1)
    asked = np.flatnonzero(flat != IGNORE)
    # One transfer for all three.
    whole = torch.from_numpy(np.concatenate((ids.reshape(-1), asked, flat[asked])))
    if device.type == "cuda":
        whole = whole.pin_memory().to(device, non_blocking=True)
    first, second, third = whole.split((ids.size, len(asked), len(asked)))
    return first.view(ids.shape), second, third


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps).to(PRODUCTS)


def _dropped(x: Tensor, share: float) -> Tensor:
    return F.dropout(x, share) if share else x


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(PRODUCTS)


def logits(model: TinyLlama, ids: Tensor, asked: Tensor, dropout: float = 0.0) -> Tensor:
    """Returns the logits at positions of the flattened `ids` `[rows, width]`, of products in `PRODUCTS` with a residual stream in float32.

    `dropout` is the share of what each block adds to the residual stream that is left out.
    """
    config = model.config
    rows, width = ids.shape
    heads, size = config.num_attention_heads, config.head_dim
    assert config.num_key_value_heads == heads
    cos, sin = model.cos[:width, None, None], model.sin[:width, None, None]
    x = F.embedding(ids.reshape(-1), model.model.embed_tokens.weight)
    last = len(model.model.layers) - 1
    for index, layer in enumerate(model.model.layers):
        own, mlp = layer.self_attn, layer.mlp
        qkv = F.linear(
            _norm(x, layer.input_layernorm.weight, config.rms_norm_eps),
            torch.cat((own.q_proj.weight, own.k_proj.weight, own.v_proj.weight)).to(PRODUCTS),
        ).view(rows, width, 3, heads, size)
        q, k = _rotated(qkv[:, :, :2], cos, sin).unbind(2)
        # Padding is on the right, where no other position attends to it.
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, 2].transpose(1, 2), is_causal=True)
        x = x + _dropped(F.linear(out.transpose(1, 2).reshape(rows * width, -1), own.o_proj.weight.to(PRODUCTS)), dropout)
        if index == last:
            x = x.index_select(0, asked)
        gate, up = F.linear(
            _norm(x, layer.post_attention_layernorm.weight, config.rms_norm_eps),
            torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)).to(PRODUCTS),
        ).chunk(2, dim=-1)
        x = x + _dropped(F.linear(F.silu(gate) * up, mlp.down_proj.weight.to(PRODUCTS)), dropout)
    return F.linear(_norm(x, model.model.norm.weight, config.rms_norm_eps), model.model.embed_tokens.weight.to(PRODUCTS))


def loss(model: TinyLlama, ids: Tensor, asked: Tensor, targets: Tensor, dropout: float = 0.0) -> Tensor:
    """Returns the mean loss of the targets at the positions `asked`."""
    return F.cross_entropy(logits(model, ids, asked, dropout).float(), targets)


@torch.no_grad()
def exact(model: TinyLlama, store: Store, device: torch.device, tokens: int = 16384) -> str:
    """Returns how many replies a model gives exactly, each after the right text before it, by the names of the examples, as one line."""
    right, total = Counter(), Counter()
    lost = learned = 0.0
    for group in store.groups(np.arange(len(store)), tokens, np.random.default_rng(0)):
        ids, asked, wanted = moved(store.rows(group), device)
        given = logits(model, ids, asked).float()
        lost += F.cross_entropy(given, wanted, reduction="sum").item()
        learned += len(wanted)
        correct = (given.argmax(-1) == wanted).cpu().numpy()
        at = asked.cpu().numpy()
        # Replies are runs of positions; rows are separated, because the first position of a prompt is not learned.
        first = np.flatnonzero(np.diff(at, prepend=-2) != 1)
        for reply, row in zip(np.logical_and.reduceat(correct, first), at[first] // ids.shape[1], strict=True):
            name = str(store.names[group[row]])
            right[name] += bool(reply)
            total[name] += 1
    parts = ", ".join(f"{name} {right[name]}/{total[name]}" for name in sorted(total))
    return f"held back: loss {lost / max(1, learned):.4f}; exact replies: {parts}"


def train(
    model: TinyLlama,
    batches: Iterator[tuple[np.ndarray, np.ndarray]],
    held: Store | None,
    schedule: Schedule,
    save: Callable[[], None],
    name: str,
    dropout: float = 0.0,
) -> None:
    """Trains a model on the device `name`. Each time it is saved, its exact replies in the examples `held` back are printed."""
    device = torch.device(name)
    model.to(device)
    source = (moved(batch, device) for batch in batches if (batch[1] != IGNORE).any())

    def save_and_check() -> None:
        save()
        if held is not None and len(held):
            print(exact(model, held, device), flush=True)

    fit(model, lambda _: next(source), schedule, save_and_check, partial(loss, dropout=dropout))
