"""Claims about architectures: what they make of a model folder's `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from flax import nnx

from dovetail.errors import ConfigError
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

SIZES: Final[dict[str, Any]] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
"""What most such files have."""
OTHERS: Final[dict[str, Any]] = {
    "rope_theta": 500_000.0,
    "rms_norm_eps": 1e-3,
    "num_attention_heads": 8,
    "intermediate_size": 96,
}


@check(
    "architecture",
    fix="Begin with the description of a similar architecture, and change its fields with attrs.evolve, spelt as in"
    " dovetail_model.spec.Spec.",
)
def describes_a_decoder(subject: Subject) -> None:
    """For an ordinary `config.json` it describes a decoder of these sizes, of which a model can be made.

    Its first use is the loading of a large model; what fails there could have been known before the download.
    """
    from dovetail_model.huggingface.config import HuggingFaceConfig
    from dovetail_model.spec import Spec
    from dovetail_model.transformer import Transformer

    # the larger models of which a text tower is read say the sizes of that under `text_config`
    values = SIZES | {"model_type": subject.component.name, "text_config": SIZES}
    try:
        spec = subject.bind()(HuggingFaceConfig(Path("config.json"), values))
    except ConfigError as error:
        raise Inapplicable(f"it needs another config.json: {error}") from error
    if not isinstance(spec, Spec):
        raise Failed(f"it returns {type(spec).__name__}, not a Spec")
    told = {"vocab_size": spec.vocab_size, "hidden_size": spec.width, "num_hidden_layers": len(spec.layers)}
    wrong = [name for name, size in told.items() if size != SIZES[name]]
    if wrong:
        raise Failed(f"where {wrong[0]} is {SIZES[wrong[0]]}, it describes one of {told[wrong[0]]}")
    nnx.eval_shape(lambda: Transformer(spec, rngs=nnx.Rngs(0)))


@check("architecture", fix="Begin with the description of a similar architecture, and keep what it has read.")
def reads_its_config(subject: Subject) -> None:
    """Another base of the rotary embedding, epsilon of the norms or number of heads in `config.json` is another
    description.

    A value that is written into the code fits the one model that it was written for; others compute nonsense.
    """
    from dovetail_model.huggingface.config import HuggingFaceConfig

    def described(**changed: Any) -> str:
        sizes = SIZES | changed
        values = sizes | {"model_type": subject.component.name, "text_config": sizes}
        try:
            return repr(subject.bind()(HuggingFaceConfig(Path("config.json"), values)))
        except ConfigError as error:
            raise Inapplicable(f"it needs another config.json: {error}") from error

    before = described()
    for name, value in OTHERS.items():
        if described(**{name: value}) == before:
            raise Failed(f"'{name}' = {SIZES[name]} can be changed to {value} unseen")
