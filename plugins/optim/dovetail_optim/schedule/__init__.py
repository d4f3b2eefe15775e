"""Schedules for a weight that is phased in, one file each; those for learning rates are in `lr_schedule`.

All rise from 0 to `max_weight` over the first `warmup_ratio` of the steps and stay there. They differ in their shape in
between, as a function of the fraction p of the rise that is done,

    p = min( step / (warmup_ratio·total_steps), 1 ),   and 1 if there is no rise.

No paper defines these curves; each is normalised here so that it starts at exactly 0 and reaches exactly `max_weight`.
With `warmup_ratio = 0` each is the constant `max_weight`.
"""
