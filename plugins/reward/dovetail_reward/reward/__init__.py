"""Rewards, one file each; modules with a leading underscore hold what several of them share."""
