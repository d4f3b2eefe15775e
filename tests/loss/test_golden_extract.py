"""A small extract of the golden facts, which runs everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loss.cases import Case, check

import dovetail

EXTRACT = json.loads((Path(__file__).parents[1] / "fixtures" / "loss.json").read_text())


def read(raw: dict[str, Any]) -> Case:
    arrays = {
        name: np.array(value, dtype=bool if name == "mask" or name.endswith("_tokens") else None)
        for name, value in raw["fields"].items()
    }
    read: dict[str, Any] = raw | {"fields": arrays}
    if "kl" in raw:
        read["kl"] = tuple(raw["kl"])
    return Case(**read)


@pytest.mark.parametrize("raw", [pytest.param(c, id=c["name"]) for c in EXTRACT["cases"]])
def test_extract(raw: dict[str, Any]) -> None:
    check(read(raw))


def test_the_extract_covers_every_kind() -> None:
    kinds = {(c["kind"], c["component"]) for c in EXTRACT["cases"]}
    assert {"policy_loss", "value_loss", "loss_agg", "kl"} == {kind for kind, _ in kinds}
    policy = {dovetail.get(kind, name).name for kind, name in kinds if kind == "policy_loss"}
    assert {"ppo", "grpo", "gspo", "cispo", "sapo", "gmpo", "dppo_tv", "dppo_kl", "dro", "luspo", "vespo"} <= policy
    assert {"reinforce", "clip_cov", "kl_cov"} <= policy
