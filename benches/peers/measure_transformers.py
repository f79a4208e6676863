"""Decode and prefill rates of transformers, as one JSON object."""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--batch-sizes", required=True)
    parser.add_argument("--decode-prompt", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--prefill-prompt", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype).eval()
    vocabulary = model.config.vocab_size

    def prompts(rows, length):
        return torch.randint(3, vocabulary, (rows, length))

    @torch.inference_mode()
    def prefill(tokens):
        output = model(tokens, use_cache=True, logits_to_keep=1)
        return output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)

    @torch.inference_mode()
    def decode(rows, length, count):
        cache, token = prefill(prompts(rows, length))
        start = time.perf_counter()
        for _ in range(count):
            output = model(token, past_key_values=cache, use_cache=True)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
        return rows * count / (time.perf_counter() - start)

    decode(1, arguments.decode_prompt, 2)
    result = {"decode": {}}
    for rows in map(int, arguments.batch_sizes.split(",")):
        result["decode"][rows] = decode(rows, arguments.decode_prompt, arguments.new_tokens)
    tokens = [prompts(1, arguments.prefill_prompt) for _ in range(3)]
    prefill(tokens[0])
    rates = []
    for one in tokens:
        start = time.perf_counter()
        prefill(one)
        rates.append(arguments.prefill_prompt / (time.perf_counter() - start))
    result["prefill"] = sorted(rates)[1]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
