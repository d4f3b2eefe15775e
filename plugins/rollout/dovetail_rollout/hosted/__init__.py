"""Engines that live elsewhere: in a process, an environment or on a machine of their own.

`engine.HostedEngine` is the rollout protocol over a `host.Host`, which completes prompts with the weights of a folder.
"""
