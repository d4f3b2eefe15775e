"""What losses need to know about a whole mini-batch before it is split: ranks of tokens, and counts."""
