"""Models: a decoder with given sizes, and a decoder read from a Hugging Face folder."""
