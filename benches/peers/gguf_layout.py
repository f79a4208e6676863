"""The layout of GGUF files in llama.cpp's converter, by family: metadata, names of tensors and order of rows."""

import math

import numpy

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
    "Olmo2ForCausalLM": "olmo2",
    "GraniteForCausalLM": "granite",
}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
EXPERTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def architecture_of(config):
    return ARCHITECTURES[config["architectures"][0]]


def name_of(architecture, name):
    """Returns the name of a tensor, and the number of the expert if each expert of a layer has such a tensor."""
    if name in WHOLE:
        return WHOLE[name], None
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    part, suffix = part.rsplit(".", 1)
    if ".experts." in part:
        _, expert, matrix = part.rsplit(".", 2)
        return f"blk.{layer}.ffn_{EXPERTS[matrix]}_exps.{suffix}", int(expert)
    target = NAMES[part]
    if part == "post_attention_layernorm" and architecture in ("gemma2", "gemma3", "olmo2"):
        target = "post_attention_norm"
    return f"blk.{layer}.{target}.{suffix}", None


def interleaved(tensor, heads):
    """Reorders rows: llama.cpp rotates neighbouring pairs, Hugging Face rotates halves."""
    rows = tensor.shape[0]
    return tensor.reshape(heads, 2, rows // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def head_size(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def converted(config, tensors, stack):
    """Yields names and tensors as the converter writes them. Norms in `tensors` are float32. `stack` joins a list of
    tensors along a new first dimension."""
    architecture = architecture_of(config)
    heads = config["num_attention_heads"]
    key_heads = config.get("num_key_value_heads") or heads
    experts = config.get("num_local_experts") or config.get("num_experts")
    stacks = {}
    for name, tensor in tensors:
        target, expert = name_of(architecture, name)
        if architecture in ("llama", "granite") and ".attn_q." in target:
            tensor = interleaved(tensor, heads)
        elif architecture in ("llama", "granite") and ".attn_k." in target:
            tensor = interleaved(tensor, key_heads)
        if architecture in ("gemma2", "gemma3") and name.endswith("norm.weight"):
            tensor = tensor + 1
        if expert is None:
            yield target, tensor
            continue
        stacks.setdefault(target, {})[expert] = tensor
        if len(stacks[target]) == experts:
            parts = stacks.pop(target)
            yield target, stack([parts[number] for number in range(experts)])
    assert not stacks, f"incomplete experts: {sorted(stacks)}"


def rope_of(config):
    """Returns the parameters of the rotary embedding, for Gemma 3 those of layers without a window."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    return {"rope_theta": config.get("rope_theta", 10000.0)} | rope


def rotary_size(config):
    partial = rope_of(config).get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    return int(head_size(config) * partial)


def frequency_factors(config):
    """Yields the tensors of divisors of the rotary frequencies: Llama 3's, or LongRoPE's."""
    rope = rope_of(config)
    if rope.get("rope_type") == "llama3":
        size = head_size(config)
        length = 2 * numpy.pi * rope["rope_theta"] ** (numpy.arange(0, size, 2) / size)
        original, low, high = (
            rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        smooth = (original / length - low) / (high - low)
        between = 1 / ((1 - smooth) / rope["factor"] + smooth)
        factors = numpy.where(length < original / high, 1, numpy.where(length > original / low, rope["factor"], between))
        yield "rope_freqs.weight", factors.astype(numpy.float32)
    for kind in ("long", "short"):
        if rope.get(f"{kind}_factor"):
            yield f"rope_factors_{kind}.weight", numpy.array(rope[f"{kind}_factor"], numpy.float32)


def write_parameters(writer, config):
    """Writes the metadata of the model, without those of its tokenizer."""
    architecture, rope = architecture_of(config), rope_of(config)
    heads, context = config["num_attention_heads"], config["max_position_embeddings"]
    writer.add_context_length(context)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_size(config))
    writer.add_value_length(head_size(config))
    writer.add_rope_dimension_count(rotary_size(config))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if architecture == "qwen3moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    original = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    kind = rope.get("rope_type", rope.get("type"))
    if kind in ("linear", "yarn"):
        import gguf

        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR if kind == "linear" else gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn" or architecture == "phi3":
        writer.add_rope_scaling_orig_ctx_len(original or context)
    if rope.get("long_factor"):
        scale = context / original
        factor = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
        writer.add_rope_scaling_attn_factors(factor)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if architecture in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config.get("sliding_window") or 0)
    if architecture == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
