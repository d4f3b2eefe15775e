"""Campaigns: what a suite has no time for, as commands that print what they have found."""
