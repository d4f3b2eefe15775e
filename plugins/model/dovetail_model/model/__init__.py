"""Models: a decoder of given sizes, and one that is read from a Hugging Face folder."""
