"""Schedules of a weight that fades something in, one file each; learning rates have theirs in `lr_schedule`.

All rise from 0 to `max_weight` over the first `warmup_ratio` of the steps and stay there. With p the share of that rise
that is done,

    p = min( step / (warmup_ratio·total_steps), 1 ),   and 1 where there is no rise

they differ in the way between. No paper fixes these curves: here each is normalised, so that it begins at exactly 0 and
reaches exactly `max_weight`. With `warmup_ratio = 0` each is the constant `max_weight`.
"""
