"""Components that choose how a step is computed, so that it fits into memory, one file each."""
