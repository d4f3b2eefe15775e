"""What losses need to know of a whole mini-batch before it is split: ranks of tokens, and counts."""
