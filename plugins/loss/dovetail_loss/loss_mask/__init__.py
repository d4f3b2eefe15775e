"""Loss masks: the part of a batch that the policy learns from, whatever its loss, one file each.

A loss mask is asked once the advantages are known, on the whole batch, so that it may rank; one that reads `logps`, the
policy being trained, is asked with the loss and treats completions one by one. It returns a weight per token, true or
false or a number, which multiplies the policy loss. What weighs nothing still counts in the lengths over which the loss
is averaged, and in KL and entropy terms, unless the loss mask returns the mask to keep as well.

`train.loss_mask` names any number of them: weights multiply, and a token stays in the mask if all keep it. The
statistics behind the advantages are those of the whole batch.
"""
