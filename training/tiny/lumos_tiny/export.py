"""Model folders in the Hugging Face layout."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .model import ModelConfig, TinyLlama
from .onetime import onetime_tokenizer
from .tokens import BOS, EOS


def save(model: TinyLlama, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes config.json, tokenizer.json and the weights in float16; tokenizer-onetime.json if the one-time planner needs another tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_hf(tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "tokenizer.json").write_text(tokenizer.to_str() + "\n")
    if onetime := onetime_tokenizer(tokenizer):
        (folder / "tokenizer-onetime.json").write_text(onetime.to_str() + "\n")
    weights = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    partial = folder / "model.safetensors.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")


def save_mixed(model: TinyLlama, tokenizer: Tokenizer, folder: Path, other: dict[str, torch.Tensor], share: float) -> None:
    """Writes the model with a share of other weights in each of its own: between a model and what was trained from it, little of either is lost."""
    mixed = copy.deepcopy(model).cpu()
    with torch.no_grad():
        for name, value in mixed.state_dict().items():
            value.copy_(share * other[name].to(value) + (1 - share) * value)
    save(mixed, tokenizer, folder)


def load(folder: Path) -> tuple[TinyLlama, Tokenizer]:
    """Reads a folder. The weights are converted to float32."""
    config = json.loads((folder / "config.json").read_text())
    fields = ModelConfig.__dataclass_fields__
    model = TinyLlama(ModelConfig(**{name: config[name] for name in fields}))
    weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    model.load_state_dict(weights)
    return model.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))
