"""One run in several processes, on one host or several."""
