"""The sources of a model's files: a folder, a GGUF file, the Hugging Face hub, an installed package."""
