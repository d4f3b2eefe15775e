"""Architectures: how the `config.json` of a Hugging Face folder, and its names of tensors, say what a decoder is.

An architecture is a function of a `HuggingFaceConfig`, registered under the `model_type` that the file names:

    register("architecture", "qwen2", "dovetail_model.architecture.qwen2:qwen2")

It returns a `Spec`, usually what `common` reads, with a few fields replaced.
"""
