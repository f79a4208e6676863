"""Measures decode and prefill rates of llama.cpp and prints one JSON object.

Calls the C interface directly. Python adds a few microseconds per step.
"""

import argparse
import ctypes
import json
import random
import time

import llama_cpp
import numpy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-sizes", required=True)
    parser.add_argument("--decode-prompt", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--prefill-prompt", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(arguments.model.encode(), parameters)
    assert model, "failed to load the model"
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    generator = random.Random(1)

    def context(rows, length):
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = max(256, (length + 1) * rows)
        settings.n_batch = settings.n_ubatch = max(512, rows)
        settings.n_seq_max = rows
        settings.n_threads = settings.n_threads_batch = arguments.threads
        settings.kv_unified = True
        made = llama_cpp.llama_init_from_model(model, settings)
        assert made, "failed to create a context"
        return made

    def fill(batch, tokens):
        """Fills a batch. Each of `tokens` is (token, position, sequence, whether to compute logits)."""
        batch.n_tokens = len(tokens)
        for index, (token, position, sequence, logits) in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = logits

    def best(made, rows):
        """Returns the most likely token of each row with logits, in order."""
        pointer = llama_cpp.llama_get_logits(made)
        return numpy.ctypeslib.as_array(pointer, shape=(rows, vocabulary)).argmax(-1).tolist()

    def prompt(length):
        return [generator.randrange(3, vocabulary) for _ in range(length)]

    def run(made, batch):
        assert llama_cpp.llama_decode(made, batch) == 0, "decode failed"

    def decode(rows, length, count):
        made = context(rows, length + count)
        batch = llama_cpp.llama_batch_init(max(512, rows), 0, 1)
        tokens = []
        for sequence in range(rows):
            one = prompt(length)
            fill(batch, [(token, at, sequence, at + 1 == length) for at, token in enumerate(one)])
            run(made, batch)
            tokens += best(made, 1)
        start = time.perf_counter()
        for step in range(count):
            fill(batch, [(token, length + step, sequence, True) for sequence, token in enumerate(tokens)])
            run(made, batch)
            tokens = best(made, rows)
        rate = rows * count / (time.perf_counter() - start)
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(made)
        return rate

    def prefill(length):
        made = context(1, length)
        batch = llama_cpp.llama_batch_init(max(512, length), 0, 1)
        rates = []
        for _ in range(4):
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(made), True)
            one = prompt(length)
            start = time.perf_counter()
            fill(batch, [(token, at, 0, at + 1 == length) for at, token in enumerate(one)])
            run(made, batch)
            best(made, 1)
            rates.append(length / (time.perf_counter() - start))
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(made)
        # The first is a warm-up.
        return sorted(rates[1:])[1]

    decode(1, arguments.decode_prompt, 2)
    result = {"decode": {}}
    for rows in map(int, arguments.batch_sizes.split(",")):
        result["decode"][rows] = decode(rows, arguments.decode_prompt, arguments.new_tokens)
    result["prefill"] = prefill(arguments.prefill_prompt)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
