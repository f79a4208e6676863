"""Converts a Llama in the Hugging Face layout to GGUF: `to_gguf.py FOLDER FILE [--float32]`.

Weights keep their stored type if GGUF has it, or are converted to float32. A byte-level BPE tokenizer is written
without changes. Without a tokenizer.json the vocabulary is a dummy, for measurements with token ids.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy
import torch
from llama_names import interleaved, name_of
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
    writer = gguf.GGUFWriter(target, "llama")
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if (folder / "tokenizer.json").exists():
        add_byte_level_vocabulary(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    else:
        add_dummy_vocabulary(writer, config["vocab_size"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        target_name = name_of(name)
        if ".attn_q." in target_name:
            tensor = interleaved(tensor, heads)
        elif ".attn_k." in target_name:
            tensor = interleaved(tensor, key_heads)
        tensor = tensor.contiguous()
        if float32 or tensor.dim() == 1:
            writer.add_tensor(target_name, tensor.float().numpy())
        elif tensor.dtype == torch.bfloat16:
            raw = tensor.view(torch.int16).numpy().view(numpy.uint8)
            writer.add_tensor(target_name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(target_name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
