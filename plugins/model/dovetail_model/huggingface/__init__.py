"""Files of a Hugging Face folder: `config.json`, weights under their names, chat template."""
