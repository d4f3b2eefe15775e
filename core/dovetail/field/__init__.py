"""Fields that every run may ask for.

A field that reads `logits` or `hidden_states` is a *quantity* of a forward pass: the engine computes it position by
position, in chunks, so that no [seq, token, vocab] array is ever kept. Its bare name is the policy being trained (with
gradient, for losses); `old_NAME` and `ref_NAME` are the policy at collection and the reference.
"""
