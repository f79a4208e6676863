"""Writes a Llama of the Hugging Face layout as GGUF, in the type it is stored in."""

import json
import sys
from pathlib import Path

import gguf
import numpy
import torch
from safetensors.torch import load_file

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def name_of(name):
    if name in WHOLE:
        return WHOLE[name]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[part.removesuffix('.weight')]}.weight"


def interleaved(tensor, heads):
    """llama.cpp turns neighbouring pairs, Hugging Face halves."""
    rows, columns = tensor.shape
    return tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main():
    folder, target = Path(sys.argv[1]), sys.argv[2]
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
    # No text is read or written: a vocabulary of byte-fallback words is enough.
    writer.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words += [f"word{index}" for index in range(len(words), config["vocab_size"])]
    writer.add_token_list(words[: config["vocab_size"]])
    writer.add_token_scores([0.0] * config["vocab_size"])
    kinds = [2, 3, 3] + [6] * 256 + [1] * config["vocab_size"]
    writer.add_token_types(kinds[: config["vocab_size"]])
    for name, tensor in load_file(folder / "model.safetensors").items():
        target_name = name_of(name)
        if ".attn_q." in target_name:
            tensor = interleaved(tensor, heads)
        elif ".attn_k." in target_name:
            tensor = interleaved(tensor, key_heads)
        tensor = tensor.contiguous()
        if tensor.dtype == torch.bfloat16 and tensor.dim() == 2:
            raw = tensor.view(torch.int16).numpy().view(numpy.uint8)
            writer.add_tensor(target_name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(target_name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
