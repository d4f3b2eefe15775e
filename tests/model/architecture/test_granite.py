import pytest
from tests.model.folders import config_of

from dovetail.errors import ConfigError
from dovetail_model.huggingface.config import FILE, HuggingFaceConfig
from dovetail_model.huggingface.lookup import read_spec


def spec_of(**changes):
    return read_spec(HuggingFaceConfig(FILE, config_of("granite") | changes))


def test_the_logits_are_divided_and_the_rest_is_multiplied():
    spec = spec_of(logits_scaling=8)
    factors = spec.embedding_scale, spec.query_scale, spec.residual_scale, spec.logit_scale
    assert factors == (3.0, 0.3, 0.4, 1 / 8)


def test_a_division_by_zero_is_refused():
    with pytest.raises(ConfigError, match="logits_scaling = 0; logits are divided by it"):
        spec_of(logits_scaling=0.0)
