"""Converts a model in the Hugging Face layout to GGUF: `to_gguf.py FOLDER FILE [--float32]`.

Weights keep their stored type if GGUF has it, or are converted to float32. A byte-level BPE tokenizer is written
without changes. Without a tokenizer.json the vocabulary is a dummy, for measurements with token ids.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy
import torch
from gguf_layout import architecture_of, converted, frequency_factors, write_parameters
from safetensors.torch import load_file


def add_dummy_vocabulary(writer, size):
    """Adds a vocabulary of byte-fallback words, for measurements that do not tokenize text."""
    writer.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words += [f"word{index}" for index in range(len(words), size)]
    writer.add_token_list(words[:size])
    writer.add_token_scores([0.0] * size)
    kinds = [2, 3, 3] + [6] * 256 + [1] * size
    writer.add_token_types(kinds[:size])


def add_byte_level_vocabulary(writer, tokenizer, config):
    """Adds a byte-level BPE vocabulary that splits text like GPT-2, with single digits."""
    model, splitters = tokenizer["model"], tokenizer["pre_tokenizer"]["pretokenizers"]
    kinds = [splitter["type"] for splitter in splitters]
    assert model["type"] == "BPE" and kinds == ["Digits", "ByteLevel"], "llama.cpp has no equivalent of this tokenizer"
    assert splitters[0]["individual_digits"] and splitters[1]["use_regex"] and not splitters[1]["add_prefix_space"]
    size = config["vocab_size"]
    words = [f"[unused{index}]" for index in range(size)]
    kinds = [gguf.TokenType.UNUSED] * size
    for word, index in model["vocab"].items():
        words[index], kinds[index] = word, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        words[token["id"]], kinds[token["id"]] = token["content"], kind
    writer.add_tokenizer_model("gpt2")
    # llama.cpp's name for this pre-tokenizer.
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    # Prompts of Lumos's models have no BOS token.
    writer.add_add_bos_token(False)


def main():
    folder, target, float32 = Path(sys.argv[1]), sys.argv[2], "--float32" in sys.argv[3:]
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, architecture_of(config))
    write_parameters(writer, config)
    if (folder / "tokenizer.json").exists():
        add_byte_level_vocabulary(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    else:
        add_dummy_vocabulary(writer, config["vocab_size"])
    for name, factors in frequency_factors(config):
        writer.add_tensor(name, factors)
    tensors = load_file(folder / "model.safetensors").items()
    # Vectors and routers are float32, as in the converter.
    whole = lambda name, tensor: float32 or tensor.dim() == 1 or name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight"))
    widened = ((name, tensor.float() if whole(name, tensor) else tensor) for name, tensor in tensors)
    for name, tensor in converted(config, widened, torch.stack):
        tensor = tensor.contiguous()
        if tensor.dtype == torch.bfloat16:
            raw = tensor.view(torch.int16).numpy().view(numpy.uint8)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
