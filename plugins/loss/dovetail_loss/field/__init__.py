"""Fields that losses need from a whole mini-batch before it is split (ranks of tokens, counts) or from the logits."""
