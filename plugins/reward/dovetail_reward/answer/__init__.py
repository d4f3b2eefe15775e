"""Answers: extract the answer of a completion, in a form in which equal answers are equal strings."""
