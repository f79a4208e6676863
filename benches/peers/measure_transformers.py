"""Measures decode and prefill rates of transformers and prints one JSON object."""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

# As `lumos bench engine --random-weights` has them: hidden size, intermediate size, layers, heads, key-value heads,
# vocabulary, context length.
SHAPES = {
    "llama2-7b": (4096, 11008, 32, 32, 32, 32000, 4096),
    "tinyllama": (2048, 5632, 22, 32, 4, 32000, 2048),
}


def random_model(shape, dtype, device):
    """A model with random weights, which are made on the device."""
    hidden, intermediate, layers, heads, key_value_heads, vocabulary, context = SHAPES[shape]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        vocab_size=vocabulary,
        max_position_embeddings=context,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def main():
    parser = argparse.ArgumentParser()
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="folder of a model")
    source.add_argument("--shape", choices=SHAPES, help="shape with random weights; needs no files")
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16"], required=True)
    parser.add_argument("--batch-sizes", required=True)
    parser.add_argument("--decode-prompt", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--prefill-prompt", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[arguments.dtype]
    if arguments.shape:
        model = random_model(arguments.shape, dtype, arguments.device).eval()
    else:
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype).eval().to(arguments.device)
    vocabulary = model.config.vocab_size

    def prompts(rows, length):
        return torch.randint(3, vocabulary, (rows, length)).to(arguments.device)

    def now():
        if arguments.device != "cpu":
            torch.cuda.synchronize(arguments.device)
        return time.perf_counter()

    @torch.inference_mode()
    def prefill(tokens):
        output = model(tokens, use_cache=True, logits_to_keep=1)
        return output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)

    @torch.inference_mode()
    def decode(rows, length, count):
        cache, token = prefill(prompts(rows, length))
        start = now()
        for _ in range(count):
            output = model(token, past_key_values=cache, use_cache=True)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
        return rows * count / (now() - start)

    decode(1, arguments.decode_prompt, 2)
    result = {"decode": {}}
    for rows in map(int, arguments.batch_sizes.split(",")):
        try:
            result["decode"][rows] = decode(rows, arguments.decode_prompt, arguments.new_tokens)
        except torch.OutOfMemoryError:
            result["decode"][rows] = None
            torch.cuda.empty_cache()
    tokens = [prompts(1, arguments.prefill_prompt) for _ in range(3)]
    prefill(tokens[0])
    rates = []
    for one in tokens:
        start = now()
        prefill(one)
        rates.append(arguments.prefill_prompt / (now() - start))
    result["prefill"] = sorted(rates)[1]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
