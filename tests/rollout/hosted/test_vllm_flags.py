"""Flags of a user that contradict the engine's own are refused when the config is read; others override."""

import re

import pytest

from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail_rollout.hosted.vllm_flags import OURS, check_flags

ENGINE = ("train.rollout=vllm", "rollout.vllm.command='true'")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            ("--max-model-len", "64", "--api-key", "mine"),
            "'--api-key' contradicts the engine's own --api-key: each serv",
        ),
        (("--api_key=mine",), "'--api_key=mine' contradicts the engine's own --api-key"),
        (("--served-model", "x"), "'--served-model' contradicts the engine's own --served-model-name"),
    ],
)
def test_a_flag_that_contradicts_ours_is_refused_at_parse(flags, named):
    with pytest.raises(ConfigError, match=re.escape(f"rollout.vllm.flags: {named}")) as refused:
        load(None, [*ENGINE, f"rollout.vllm.flags={flags!r}"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("flag", OURS)
def test_each_of_ours_is_named(flag):
    with pytest.raises(ConfigError, match=f"'{flag}=1' contradicts the engine's own {flag}: "):
        check_flags([f"{flag}=1"], starts=True)


def test_flags_of_a_server_that_is_not_ours_are_refused():
    with pytest.raises(
        ConfigError, match=r"rollout\.vllm\.flags = \('--max-model-len', '64'\) would have no effect: the s"
    ):
        load(
            None,
            [
                "train.rollout=vllm",
                "rollout.vllm.url='http://127.0.0.1:1'",
                "rollout.vllm.flags=('--max-model-len', '64')",
            ],
        )


def test_other_flags_are_the_users():
    flags = ("--dtype", "float32", "--middleware", "mine.Middleware", "--model-impl", "auto", "-tp", "2", "--port-x")
    load(None, [*ENGINE, f"rollout.vllm.flags={flags!r}"])
