"""Launchers, which say where the replicas of an engine run."""
