"""Architectures: readers of the `config.json` of a Hugging Face folder, one per model family.

An architecture is a function of a `HuggingFaceConfig`, registered under the `model_type` of that file:

    register("architecture", "qwen2", "dovetail_model.architecture.qwen2:qwen2")

It returns a `Spec`: usually the result of `common` with a few fields replaced.
"""
