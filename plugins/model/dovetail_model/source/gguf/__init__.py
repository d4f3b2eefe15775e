"""GGUF files: one file with a model's sizes, weights, tokenizer and chat template."""
