"""OLMo 2."""

from __future__ import annotations

import attrs

from dovetail_model.huggingface.config import HuggingFaceConfig, common
from dovetail_model.huggingface.names import GEMMA
from dovetail_model.spec import Spec


def olmo2(config: HuggingFaceConfig) -> Spec:
    """OLMo 2: Llama, with norms after instead of before each layer, and with normalised queries and keys.

        x ← x + Norm(Attention(x)),  x ← x + Norm(GLU(x))

    OLMo Team 2024, "2 OLMo 2 Furious", section 3.2. One norm covers the queries of all heads together, and another
    their keys.
    """
    bias = config.get("attention_bias", bool, False)
    return attrs.evolve(
        common(config),
        names=GEMMA,
        norm_epsilon=config.get("rms_norm_eps", float, 1e-5),
        pre_norms=False,
        post_norms=True,
        qk_norm=True,
        qk_norm_over="heads",
        qkv_bias=bias,
        out_bias=bias,
    )
