"""Controllers of the entropy bonus's coefficient, one file each; `fixed` is the one in `kl_controller`."""
