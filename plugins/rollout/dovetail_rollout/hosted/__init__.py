"""Engines that run elsewhere: in a process, in an environment or on a machine of their own.

`engine.HostedEngine` implements the rollout protocol over a `host.Host`, which completes prompts with the weights in a
folder.

An engine elsewhere gets ids, seeds and files, because its dependencies exclude ours and a Hugging Face folder is what
both sides understand. Weights go through safetensors in memory, which takes 0.1 s for a small model, and an engine that
has died restarts from the newest folder with nothing else to restore. Direct transfers (NCCL, CUDA IPC) are faster for
large models, but differ for every engine and device; they would be another `Host.load`. Prompts and completions travel
as ids, and stop strings are searched on our side, so the engine's tokenizer, chat template and defaults do not matter.
A completion is a request of its own, since only that way can it have its own seed.
"""
