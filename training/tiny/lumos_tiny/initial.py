"""Initial weights with a copying circuit, so that training begins with a model that can copy.

Copying a sequence that occurred before takes two layers (Elhage et al. 2021, Olsson et al. 2022): heads of the first layer attend to the
previous token and write its content next to that of each token; heads of the second layer look for positions whose previous token is the
current one, and predict the token there. With few processor hours most of the training would be spent until this forms. The circuit is
therefore written into the initial weights, which all remain trainable.

The residual stream is divided: content of the token (half), content of the previous token (three eighths), a constant, and free dimensions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from .model import TinyLlama

#: A larger base than usual: half of the frequencies are then nearly constant over a whole prompt and serve to compare contents.
ROPE_THETA = 1e6
SCALE = 0.15
CONSTANT = 4.0
SLICE = 24


@torch.no_grad()
def write_copying_circuit(model: TinyLlama) -> None:
    """Writes the circuit into the embedding and the first two layers of a fresh model."""
    config = model.config
    hidden, head = config.hidden_size, config.head_dim
    half, pairs = head // 2, head // 4
    content = hidden // 2
    copied = 3 * hidden // 8
    constant = content + copied
    angles = config.rope_theta ** (-torch.arange(0, head, 2) / head)
    embedding = model.model.embed_tokens.weight
    embedding.zero_()
    embedding[:, :content].normal_(std=SCALE)
    embedding[:, constant + 1 :].normal_(std=0.02)
    embedding[:, constant] = CONSTANT * SCALE
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn

    # Previous token: the score is a sum of cosines of the distance minus one, from the constant alone.
    size = (content * SCALE**2 + (CONSTANT * SCALE) ** 2) / hidden
    norm = math.sqrt(size)
    amplitude = 9.0 / (CONSTANT * SCALE / norm)
    for index in range(copied // SLICE):
        rows = index * head
        _clear(first, rows, head)
        for f in range(6):
            first.q_proj.weight[rows + f, constant] = amplitude * math.cos(-angles[f])
            first.q_proj.weight[rows + half + f, constant] = amplitude * math.sin(-angles[f])
            first.k_proj.weight[rows + f, constant] = amplitude
        for d in range(SLICE):
            first.v_proj.weight[rows + d, index * SLICE + d] = 1.0
            first.o_proj.weight[content + index * SLICE + d, rows + d] = norm

    # Same content as the previous token's: only the slow frequencies, which positions hardly rotate.
    slow = [*range(half - pairs, half), *range(head - pairs, head)]
    norm = math.sqrt(((content + copied) * SCALE**2 + (CONSTANT * SCALE) ** 2) / hidden)
    weight = 3.75 / (SCALE / norm)
    heads = copied // len(slow)
    width = content // heads
    for index in range(heads):
        rows = index * head
        _clear(second, rows, head)
        for d, row in enumerate(slow):
            second.q_proj.weight[rows + row, index * len(slow) + d] = weight
            second.k_proj.weight[rows + row, content + index * len(slow) + d] = weight
        for d in range(width):
            second.v_proj.weight[rows + d, index * width + d] = 1.0
            second.o_proj.weight[index * width + d, rows + d] = 3 * norm


def _clear(attention: torch.nn.Module, start: int, size: int) -> None:
    for part in (attention.q_proj, attention.k_proj, attention.v_proj):
        part.weight[start : start + size] = 0
    attention.o_proj.weight[:, start : start + size] = 0


def copied_share(model: TinyLlama, vocabulary: int, length: int = 60) -> float:
    """Returns the share of tokens that a model predicts in the second half of random sequences that repeat themselves."""
    generator = torch.Generator().manual_seed(0)
    half: Tensor = torch.randint(3, vocabulary, (16, length), generator=generator)
    ids = torch.cat((half, half), dim=1)
    keep = torch.zeros_like(ids, dtype=torch.bool)
    keep[:, length:-1] = True
    with torch.inference_mode():
        given = model.logits(model.hidden(ids, keep)).argmax(-1)
    return float((given == ids[:, length + 1 :].reshape(-1)).float().mean())


def grown(model: TinyLlama, layers: int) -> TinyLlama:
    """Returns a model with more layers, the last of which add nothing to the residual stream until they are trained."""
    if not layers:
        return model
    larger = TinyLlama(replace(model.config, num_hidden_layers=model.config.num_hidden_layers + layers))
    larger.load_state_dict(model.state_dict(), strict=False)
    for layer in larger.model.layers[-layers:]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return larger
