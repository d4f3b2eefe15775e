"""Off-policy corrections for the gap between the sampler and the trainer.

The sampler's policy differs from the trainer's, because of different kernels, precision or expert routing even with the
same weights, or because its weights are older. With μ the policy as the sampler reports it and π the trainer's own at
collection, a correction reads the log-ratio x = log π - log μ of every sampled token. It returns `is_weights`, which
multiply the policy loss, and the mask of the tokens to keep. It runs once, at collection; both results are constants
for the gradient.

A token that is removed from the mask no longer counts anywhere: in the loss, in the denominators of its average, or in
the statistics of its group.

`train.correction` names any number of corrections: their weights are multiplied, and a token is kept if all of them
keep it. Each file here implements one idea; `tis_reject` is the combination used in practice, weights together with
rejection. At every step the engine measures the mismatch between sampler and trainer, with or without a correction
(`mismatch/...`), and the effect of the corrections (`correction/...`).
"""
