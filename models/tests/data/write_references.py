"""Writes the folders beside this file: tiny random models and what transformers 5.23 computes with them in float32.

`python3 write_references.py`, with torch and transformers. The families are those that candle-transformers has and the
engine has not; `tests/it/candle_transformers.rs` reads the folders.
"""

import json
from pathlib import Path

import torch
from transformers import (
    GemmaConfig, GemmaForCausalLM, OlmoConfig, OlmoForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Starcoder2Config,
    Starcoder2ForCausalLM,
)

VOCABULARY = 64
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, eos_token_id=1, bos_token_id=0, pad_token_id=0,
)
MODELS = {
    "gemma": (GemmaForCausalLM, GemmaConfig(head_dim=16, **SIZES)),
    "olmo": (OlmoForCausalLM, OlmoConfig(**SIZES)),
    "qwen2-moe": (
        Qwen2MoeForCausalLM,
        Qwen2MoeConfig(
            moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=5, num_experts_per_tok=2, **SIZES
        ),
    ),
    "starcoder2": (Starcoder2ForCausalLM, Starcoder2Config(sliding_window=None, use_bias=True, **SIZES)),
}
LENGTHS = [1, 2, 17, 40, 150]
NEW_TOKENS = 16


def cases(model):
    for length in LENGTHS:
        ids = [(7 * at * at + 3 * at + length) % VOCABULARY for at in range(length)]
        tokens, first, margin = list(ids), None, []
        for _ in range(NEW_TOKENS):
            logits = model(torch.tensor([tokens])).logits[0, -1]
            first = logits if first is None else first
            best = torch.topk(logits, 2)
            margin.append((best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
        safe = next((index for index, one in enumerate(margin) if one < 0.002), NEW_TOKENS)
        logits = [round(value, 6) for value in first.tolist()]
        yield {"ids": ids, "greedy": tokens[length:], "safe_tokens": safe, "logits": logits}


def main():
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None, "truncation": None, "padding": None,
        "model": {"type": "WordLevel", "vocab": {f"t{token}": token for token in range(VOCABULARY)}, "unk_token": "t0"},
    }
    for name, (kind, config) in MODELS.items():
        torch.manual_seed(5)
        model = kind(config).to(torch.bfloat16)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        folder = Path(__file__).parent / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            lines = [json.dumps(case) + "\n" for case in cases(model)]
        (folder / "cases.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
