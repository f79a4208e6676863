"""Quantizes a GGUF file with llama.cpp: quantize.py SOURCE TARGET Q8_0|Q4_K_M|Q6_K."""

import ctypes
import sys

import llama_cpp


def main():
    source, target, name = sys.argv[1:]
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    failed = llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters))
    if failed:
        sys.exit(f"llama.cpp failed to quantize {source}")


if __name__ == "__main__":
    main()
