"""Learning-rate schedules, one file each, as factors of the peak learning rate."""
