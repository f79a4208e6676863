"""The small trained model pair of lumos: problem generator, tokenizer, model, export."""
