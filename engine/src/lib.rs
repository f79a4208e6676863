//! Inference on candle: models, tokenizer, KV cache, scheduler, sampler.
