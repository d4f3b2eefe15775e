"""Loss masks: select or weight the part of a batch that the policy is trained on, whatever its loss, one file each.

A loss mask is called on the whole batch once the advantages are known, so that it may rank tokens. One that reads
`logps`, the policy being trained, is called together with the loss, and must treat completions separately. It returns a
weight per token, boolean or a number, which multiplies the policy loss. A token with weight zero still counts in the
lengths over which the loss is averaged, and in KL and entropy terms, unless the loss mask also returns a mask to keep.

`train.loss_mask` names any number of loss masks: their weights are multiplied, and a token stays in the mask if all
keep it. Advantages are computed before, from the whole batch.
"""
