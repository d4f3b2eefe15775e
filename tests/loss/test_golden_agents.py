"""The ratio of a turn against ReMA's code, loss and gradient; it divides by the tokens of a turn in float32."""

from __future__ import annotations

import numpy as np
from tests.golden import Arrays, Fact, load
from tests.loss import cases as golden


def cases() -> list[tuple[dict, Arrays]]:
    """Return the cases of this file with their arrays by name."""
    found, arrays = load("agents")
    mine = [case for case in found if case["function"] == "compute_policy_loss"]
    return [(c, {name: arrays[key] for name, key in (c["inputs"] | c["outputs"]).items()}) for c in mine]


def facts() -> list[Fact]:
    """Return the cases of this file."""
    return [Fact("agents", f"{case['source']}, {case['function']}", case["id"]) for case, _ in cases()]


def weights(x: Arrays, mode: str) -> np.ndarray:
    """Return ReMA's weights of tokens: turns count equally in the batch, or equally in their episode."""
    found = np.zeros(x["mask"].shape)
    rows = [[x["mask"][row] & (x["turns"][row] == k) for k in range(x["turns"].max() + 1)] for row in range(len(found))]
    turns = [[own for own in row if own.any()] for row in rows]
    for row, owns in enumerate(turns):
        for own in owns:
            share = 1 / sum(map(len, turns)) if mode == "turn" else 1 / (len(turns) * len(owns))
            found[row, own] = share / own.sum()
    return found


def test_remas_numbers() -> None:
    with golden.precision("float64"):
        for case, x in cases():
            config, w = case["config"], weights(x, case["config"]["agg_mode"])
            params = {"epsilon_low": config["cliprange_low"], "epsilon_high": config["cliprange_high"]}
            fields = {name: x[name] for name in ("logps", "old_logps", "advantages", "turns", "mask")}
            loss, gradient, metrics = golden.pull("policy_loss", "gspo_turn", fields, params, w)
            np.testing.assert_allclose(np.sum(w * loss), x["loss"], rtol=1e-6, err_msg=case["id"])
            np.testing.assert_allclose(gradient, x["gradient"], rtol=1e-6, atol=1e-9, err_msg=case["id"])
            assert 0 < np.asarray(metrics["clip_fraction"])[x["mask"]].mean() < 1
