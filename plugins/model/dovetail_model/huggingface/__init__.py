"""The files of a Hugging Face folder: `config.json`, weights under their names, the chat template."""
