"""A small Llama-architecture causal language model in plain PyTorch.

Parameter names follow the Hugging Face layout (`model.layers.N.self_attn.q_proj.weight`, ...)
and rotary embeddings use the rotate-half convention, so a state dict can be exported without changes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Type of products on this processor. With AVX2 alone, PyTorch computes products of bfloat16 many times slower than those of float32.
PRODUCTS = torch.float32 if torch.backends.cpu.get_cpu_capability() == "AVX2" else torch.bfloat16


@dataclass(frozen=True)
class ModelConfig:
    """Shape of one model."""

    vocab_size: int
    hidden_size: int = 192
    intermediate_size: int = 448
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 6
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def to_hf(self, bos_token_id: int, eos_token_id: int) -> dict:
        """Returns the `config.json` of the exported folder."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "torch_dtype": "float16",
            "bos_token_id": bos_token_id,
            "eos_token_id": eos_token_id,
            **asdict(self),
        }


class RMSNorm(nn.Module):
    """Root mean square normalisation with a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies rotary embeddings (rotate-half) to `[batch, heads, time, head_dim]`."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


@dataclass
class Cache:
    """Keys and values of one layer. After the first extension, tokens are added one at a time."""

    k: Tensor | None = None
    v: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends along time. Returns all keys and values so far."""
        self.k = k if self.k is None else torch.cat((self.k, k), dim=2)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=2)
        return self.k, self.v


class Attention(nn.Module):
    """Causal self-attention with grouped key/value heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_dim = config.head_dim
        kv_size = self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        batch, time, width = x.shape
        q = self.q_proj(x).view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.extend(k, v)
        grouped = self.kv_heads != self.heads
        out = F.scaled_dot_product_attention(q, k, v, is_causal=time > 1, enable_gqa=grouped)
        return self.o_proj(out.transpose(1, 2).reshape(batch, time, width))


class FeedForward(nn.Module):
    """SwiGLU feed-forward block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None, keep: Tensor | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        if keep is not None:
            x = x[keep]
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Embedding, layers and final norm: `model.*` of the checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class TinyLlama(nn.Module):
    """The whole model, with the output projection tied to the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
        angles = torch.outer(torch.arange(config.max_position_embeddings), inverse)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.apply(self._initialise)
        residual_std = 0.02 / (2 * config.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=residual_std)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def hidden(self, ids: Tensor, keep: Tensor, caches: list[Cache] | None = None, past: int = 0) -> Tensor:
        """Returns the final hidden states of `[batch, time]` token ids that follow `past` cached ones.

        Only positions where the mask `keep` is true go through the last feed-forward block and are
        returned, as `[kept, hidden]`.
        """
        time = ids.shape[1]
        cos, sin = self.cos[past : past + time], self.sin[past : past + time]
        x = self.model.embed_tokens(ids)
        last = len(self.model.layers) - 1
        for index, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, caches[index] if caches else None, keep if index == last else None)
        return self.model.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits of hidden states."""
        return F.linear(hidden, self.model.embed_tokens.weight)
