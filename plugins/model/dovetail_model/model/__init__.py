"""Models: a decoder with given sizes, and one read from a Hugging Face folder."""
