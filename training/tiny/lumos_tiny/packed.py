"""Training steps on packed sequences, several times faster than on padded ones.

Sequences follow each other in one row of tokens, and each attends to itself only. C++ kernels (`kernels.cpp`) compute attention for exactly
the pairs of tokens that need it, and the activation; the rest is compiled by `torch.compile` for one shape of batches. Products are in bfloat16,
or in float32 on processors that have AVX2 only.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .examples import IGNORE, Example
from .model import PRODUCTS, TinyLlama

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fopenmp-simd", "-shared", "-fPIC"]
HEAD = 32
#: Longest sequence of zeros: attention takes time for each pair of its tokens, and a model has positions for a limited number.
FILLER = 64
BF16 = torch.bfloat16


@cache
def library() -> ctypes.CDLL:
    """Compiles the kernel with `$CXX` or `g++`, once per version of its source."""
    name = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    # Not in a folder that other users may write to.
    built = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lumos" / f"training-kernels-{name}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        partial = built.with_suffix(f".{os.getpid()}")
        subprocess.run([os.environ.get("CXX", "g++"), *FLAGS, "-o", str(partial), str(SOURCE)], check=True)
        partial.replace(built)
    return ctypes.CDLL(str(built))


def _call(function: str, qkv: Tensor, starts: Tensor, cos: Tensor, sin: Tensor, *others: Tensor) -> None:
    tensors = [ctypes.c_void_p(t.data_ptr()) for t in others]
    tokens, _, heads, size = qkv.shape
    assert size == HEAD and int(starts.diff().max()) <= len(cos) and all(t.is_contiguous() for t in (qkv, starts, cos, sin, *others))
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (qkv, starts, cos, sin)]
    getattr(library(), function)(*pointers[:2], starts.numel() - 1, heads, *pointers[2:], tokens, *tensors)


@torch.library.custom_op("lumos_tiny::attention", mutates_args=())
def attention(qkv: Tensor, starts: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the attention of `[tokens, 3, heads, 32]` within the sequences that begin at `starts`, and the logarithms of its sums."""
    tokens, _, heads, size = qkv.shape
    out, lse = qkv.new_empty(tokens, heads, size), qkv.new_empty(heads, tokens, dtype=torch.float32)
    _call("attention_forward", qkv, starts, cos, sin, out, lse)
    return out, lse


@torch.library.custom_op("lumos_tiny::attention_backward", mutates_args=())
def attention_backward(qkv: Tensor, starts: Tensor, cos: Tensor, sin: Tensor, out: Tensor, lse: Tensor, dout: Tensor) -> Tensor:
    """Returns the gradient of the queries, keys and values."""
    dqkv = torch.empty_like(qkv)
    _call("attention_backward", qkv, starts, cos, sin, out, lse, dout.contiguous(), dqkv)
    return dqkv


@attention.register_fake
def _(qkv: Tensor, starts: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    tokens, _, heads, size = qkv.shape
    return qkv.new_empty(tokens, heads, size), qkv.new_empty(heads, tokens, dtype=torch.float32)


@attention_backward.register_fake
def _(qkv: Tensor, starts: Tensor, cos: Tensor, sin: Tensor, out: Tensor, lse: Tensor, dout: Tensor) -> Tensor:
    return torch.empty_like(qkv)


def _setup(ctx, inputs: tuple, output: tuple) -> None:  # noqa: ANN001
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx, dout: Tensor, _: Tensor) -> tuple:  # noqa: ANN001
    return attention_backward(*ctx.saved_tensors, dout), None, None, None


attention.register_autograd(_backward, setup_context=_setup)


def _call_swiglu(function: str, both: Tensor, *others: Tensor) -> None:
    assert both.dtype == BF16 and all(t.is_contiguous() for t in (both, *others))
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (both, *others)]
    getattr(library(), function)(pointers[0], ctypes.c_int64(both.shape[0]), both.shape[1] // 2, *pointers[1:])


@torch.library.custom_op("lumos_tiny::swiglu", mutates_args=())
def swiglu(both: Tensor) -> Tensor:
    """Returns SiLU(gate) * up for gates and ups side by side, `[tokens, 2 * size]`."""
    out = both.new_empty(both.shape[0], both.shape[1] // 2)
    _call_swiglu("swiglu_forward", both, out)
    return out


@torch.library.custom_op("lumos_tiny::swiglu_backward", mutates_args=())
def swiglu_backward(both: Tensor, dout: Tensor) -> Tensor:
    """Returns the gradient of gates and ups."""
    dboth = torch.empty_like(both)
    _call_swiglu("swiglu_backward", both, dout.contiguous(), dboth)
    return dboth


swiglu.register_fake(lambda both: both.new_empty(both.shape[0], both.shape[1] // 2))
swiglu_backward.register_fake(lambda both, _: torch.empty_like(both))
swiglu.register_autograd(
    lambda ctx, dout: swiglu_backward(*ctx.saved_tensors, dout), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x.to(PRODUCTS), weight.to(PRODUCTS))


def loss(model: TinyLlama, ids: Tensor, starts: Tensor, asked: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss of the `targets` at the positions `asked` of one row of `ids`; targets that are IGNORE do not count."""
    config, half = model.config, HEAD // 2
    assert config.head_dim == HEAD and config.num_key_value_heads == config.num_attention_heads
    cos, sin = model.cos[:, :half].contiguous(), model.sin[:, :half].contiguous()
    x = F.embedding(ids, model.model.embed_tokens.weight)
    last = len(model.model.layers) - 1
    for index, layer in enumerate(model.model.layers):
        own, mlp = layer.self_attn, layer.mlp
        qkv = _product(
            _norm(x, layer.input_layernorm.weight, config.rms_norm_eps),
            torch.cat((own.q_proj.weight, own.k_proj.weight, own.v_proj.weight)),
        )
        out, _ = attention(qkv.to(BF16).view(len(ids), 3, -1, HEAD), starts, cos, sin)
        x = x + _product(out.view(len(ids), -1), own.o_proj.weight)
        if index == last:
            x = x[asked]
        both = _product(
            _norm(x, layer.post_attention_layernorm.weight, config.rms_norm_eps),
            torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)),
        )
        x = x + _product(swiglu(both.to(BF16)), mlp.down_proj.weight)
    logits = _product(_norm(x, model.model.norm.weight, config.rms_norm_eps), model.model.embed_tokens.weight)
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE)


def packs(examples: Iterator[Example], tokens: int, share: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yields batches of exactly `tokens` ids and `share * tokens` targets: ids, starts of the sequences, positions asked, targets.

    A batch is full when its next example does not fit in either. What is left are sequences of at most `FILLER` zeros.
    """
    most = int(tokens * share)
    ids, asked, wanted, starts = [], [], [], [0]
    for example in examples:
        places = [i for i, target in enumerate(example.targets) if target != IGNORE]
        if len(example.ids) > tokens or len(places) > most:
            continue
        if len(ids) + len(example.ids) > tokens or len(asked) + len(places) > most:
            ends = [*range(len(ids) + FILLER, tokens, FILLER), tokens] if len(ids) < tokens else []
            yield (
                torch.tensor(ids + [0] * (tokens - len(ids))),
                torch.tensor(starts + ends, dtype=torch.int32),
                torch.tensor(asked + [0] * (most - len(asked))),
                torch.tensor(wanted + [IGNORE] * (most - len(wanted))),
            )
            ids, asked, wanted, starts = [], [], [], [0]
        asked += [len(ids) + i for i in places]
        wanted += [example.targets[i] for i in places]
        ids += example.ids
        starts.append(len(ids))


def compiled(model: TinyLlama, *tensors: Tensor) -> Tensor:
    """Returns `loss` of a batch of `packs`, compiled for its number of tokens at the first call."""
    torch._dynamo.mark_dynamic(tensors[1], 0)
    return _compiled()(model, *tensors)


@cache
def _compiled():  # noqa: ANN202
    # Memory of freed tensors stays with the process, because pages from the kernel cost a tenth of the time.
    libc, trim, top, mmap = ctypes.CDLL(None), -1, -2, -3
    if hasattr(libc, "mallopt"):
        libc.mallopt(mmap, 1 << 30), libc.mallopt(trim, 2**31 - 1), libc.mallopt(top, 1 << 28)
    return torch.compile(loss)
