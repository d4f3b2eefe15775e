"""Where a model's files are: a folder, a GGUF file, the Hugging Face hub, an installed package."""
