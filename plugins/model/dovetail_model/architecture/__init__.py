"""Architectures: how the `config.json` of a Hugging Face folder and its tensor names describe a decoder.

An architecture is a function of a `HuggingFaceConfig`, registered under the `model_type` of that file:

    register("architecture", "qwen2", "dovetail_model.architecture.qwen2:qwen2")

It returns a `Spec`: usually the one that `common` reads, with a few fields replaced.
"""
