"""Fields that any component may read.

A field that reads `logits` or `hidden_states` is a *quantity* of a forward pass: the engine computes it in chunks of
positions, so that a whole [seq, token, vocab] array never exists. Its bare name refers to the policy being trained
(differentiable, for losses); `old_NAME` and `ref_NAME` refer to the policy at collection and to the reference.
"""
