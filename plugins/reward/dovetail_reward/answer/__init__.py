"""Answers: what a completion answers, in a form in which equal answers are equal texts."""
