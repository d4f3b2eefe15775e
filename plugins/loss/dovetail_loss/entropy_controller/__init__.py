"""Controllers of the coefficient of the entropy bonus, one file each; `fixed` is shared with `kl_controller`."""
