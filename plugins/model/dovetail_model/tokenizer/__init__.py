"""Tokenizers turn text into ids and back."""
