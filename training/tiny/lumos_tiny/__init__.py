"""The small trained models of lumos: problem generator, tokenizer, model, export."""
