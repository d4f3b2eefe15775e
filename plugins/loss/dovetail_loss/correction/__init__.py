"""Off-policy corrections for the gap between the sampler and the trainer.

The sampler's π differs from the trainer's, although both hold the same weights: other kernels, other precision, other
routing of experts, or older weights. With μ the policy as the sampler reports it and π the trainer's own at collection,
a correction looks at the log-ratio x = log π - log μ of every sampled token, and returns `is_weights`, which
multiply the policy loss, and the mask of the tokens to keep. It runs once, at collection; both are constants
to the gradient.

What leaves the mask leaves everything: the loss, the denominators of its average, and the statistics of its group.

`train.correction` names any number of them: weights multiply, and a token stays if all keep it. Each file here is one
idea; `tis_reject` is the combination that is used in practice, weights and rejection together. How far sampler and
trainer are apart is measured by the engine at every step, with or without a correction (`mismatch/...`), and so is what
the corrections of a run come to (`correction/...`).
"""
