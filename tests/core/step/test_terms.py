"""The loss is a sum of terms, each with its coefficient, schedule and tokens."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import (
    PLAIN,
    change,
    collect,
    evaluate,
    fields,
    in_micro_batches,
    make,
    moment,
    others,
    sampled,
)

import dovetail
from dovetail.errors import ConfigError
from dovetail.kinds import Kind
from dovetail.plan.roles import INPUTS
from dovetail.registry import Origin, current
from dovetail.step.forward import Model, quantities
from dovetail.step.update import mini_batches
from dovetail.training.metrics import means

BASE = (*PLAIN, "train.policy_loss=reinforce", "train.monitor=()")


def register(kind, *functions):
    for function in functions:
        dovetail.register(kind, function.__name__, function)


def square(logps, mask):
    """A term on completions."""
    return jnp.square(logps)


def cube(logps, mask):
    """Another."""
    return -logps * jnp.square(logps)


def own_nll(demo_logps, demo_mask):
    """Negative log-likelihood of demonstrations."""
    return -demo_logps


def likely_answers(answer_logps, answer_mask):
    """Negative log-likelihood of the task's answers."""
    return -answer_logps


def tied(names, *more):
    return make(*BASE, f"train.loss_terms={list(names)}", *more)


def same(one, other, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-6), one, other)


def only(algorithm, name):
    """Return the same algorithm with only one term, given by the name of its component."""
    chosen = tuple(term for term in algorithm.terms["policy"] if term.part.component.name == name)
    assert len(chosen) == 1
    return attrs.evolve(algorithm, terms={"policy": chosen})


def added(*trees):
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *trees)


def scaled(factor, tree):
    return jax.tree.map(lambda x: factor * x, tree)


SCHEDULE = ("train.schedule=linear", "schedule.linear.max_weight=0.5", "schedule.linear.warmup_ratio=0.0")


def test_terms_with_coefficients_and_a_schedule_add_up():
    """This compares the loss and the gradient, which is the negative change of one SGD step at rate 1."""
    register("loss_term", square, cube)
    chosen = ("loss_term.square.coef=0.25", "loss_term.square.scheduled=True", "loss_term.cube.coef=-2.0")
    algorithm, graphdef, weights = tied(("square", "cube"), *SCHEDULE, *chosen)
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    whole, metrics = change(algorithm, graphdef, weights, batch)
    names = ("reinforce", "square", "cube")
    alone = [change(only(algorithm, name), graphdef, weights, batch) for name in names]
    same(whole, added(*(moved for moved, _ in alone)), 1e-4)
    found = means(metrics)
    parts = [means(each)["policy_loss/loss"] for _, each in alone]
    assert found["policy_loss/loss"] == pytest.approx(sum(parts), rel=1e-6)
    assert parts[1] == pytest.approx(0.25 * 0.5 * found["loss_term/square/mean"], rel=1e-5)
    assert parts[2] == pytest.approx(-2.0 * found["loss_term/cube/mean"], rel=1e-5)
    plain, *_ = make(*BASE)
    same(alone[0][0], change(plain, graphdef, weights, batch)[0])


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 5])
def test_the_split_of_terms_into_micro_batches_changes_nothing(size):
    register("loss_term", square, own_nll, likely_answers)
    algorithm, graphdef, weights = tied(("square", "own_nll", "likely_answers"), "loss_term.own_nll.coef=0.1")
    batch, _ = collect(algorithm, graphdef, weights, with_texts())
    whole, metrics = change(algorithm, graphdef, weights, batch)
    split, measured = change(in_micro_batches(algorithm, size), graphdef, weights, batch)
    same(split, whole)
    expected, found = means(metrics), means(measured)
    assert found.keys() == expected.keys()
    assert found.pop("lengths/fill") <= expected.pop("lengths/fill")  # a ragged last micro-batch has empty rows
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def with_texts(token=7, seed=5):
    """Return a batch with an answer for each group, and a demonstration with its own prompt that counts once per group."""
    rng = np.random.default_rng(seed)
    first = np.arange(12) % 4 == 0
    lengths = np.array([2, 7, 4])
    mask = np.repeat(np.arange(token) < lengths[:, None], 4, axis=0)

    def tokens(width):
        return np.repeat(rng.integers(0, 23, (3, width)).astype(np.int32), 4, axis=0)

    return sampled() | {
        "answer_tokens": jnp.asarray(tokens(token)),
        "answer_mask": jnp.asarray(mask),
        "demo_prompt_tokens": jnp.asarray(tokens(4)),
        "demo_prompt_mask": jnp.asarray(np.repeat(np.arange(4) >= np.array([0, 2, 1])[:, None], 4, axis=0)),
        "demo_tokens": jnp.asarray(tokens(token)),
        "demo_mask": jnp.asarray(mask[::-1] & first[:, None]),
    }


def likelihood(graphdef, weights, batch, inputs):
    """Return the log-probabilities of the texts in place of completions, row by row."""
    given = {name: batch[field] for name, field in INPUTS[inputs].fields.items()}
    return np.asarray(evaluate(graphdef, weights, given, fields("logps"), 1.0)["logps"])


@pytest.mark.slow
@pytest.mark.parametrize(("term", "inputs"), [(own_nll, "demonstrations"), (likely_answers, "answers")])
def test_a_term_on_other_texts_is_a_mean_over_their_own_tokens(term, inputs):
    register("loss_term", term)
    name = term.__name__
    algorithm, graphdef, weights = tied((name,), f"loss_term.{name}.coef=3.0")
    batch, _ = collect(algorithm, graphdef, weights, with_texts())
    mask = np.asarray(batch[INPUTS[inputs].fields["mask"]])
    assert mask.sum() != np.asarray(batch["mask"]).sum()
    expected = -likelihood(graphdef, weights, batch, inputs)[mask].mean()
    for size in (12, 5):
        _, metrics = change(in_micro_batches(only(algorithm, name), size), graphdef, weights, batch)
        found = means(metrics)
        assert found[f"loss_term/{name}/mean"] == pytest.approx(expected, rel=1e-4)
        assert found["policy_loss/loss"] == pytest.approx(3 * expected, rel=1e-4)


def test_a_policy_loss_learns_through_the_answers_too():
    """The policy's log-probabilities on other inputs are differentiable; otherwise a loss of only these learns nothing."""
    dovetail.register("policy_loss", "likely_answers", likely_answers)
    algorithm, graphdef, weights = make(*PLAIN, "train.monitor=()", "train.policy_loss=likely_answers")
    batch, _ = collect(algorithm, graphdef, weights, with_texts())
    _, metrics = change(algorithm, graphdef, weights, batch)
    assert means(metrics)["optimizer/grad_norm"] > 0.01


@pytest.mark.slow
def test_demonstrations_keep_their_weight_where_groups_are_cut_into_mini_batches():
    """The first row of a group has the demonstration, whichever mini-batch the row is in."""
    register("loss_term", own_nll)
    algorithm, graphdef, weights = tied(("own_nll",), "train.mini_batch_size=6", "train.loss_agg=token_sum")
    assert algorithm.sizes.rows_per_prompt == 2
    batch, _ = collect(algorithm, graphdef, weights, with_texts())
    total = -likelihood(graphdef, weights, batch, "demonstrations")[np.asarray(batch["demo_mask"])].sum()
    alone = only(algorithm, "own_nll")
    minis = mini_batches(batch, 6, 1, jax.random.key(0), algorithm.sizes.rows_per_prompt)
    losses = [means(change(alone, graphdef, weights, mini)[1])["policy_loss/loss"] for mini in minis]
    assert sum(losses) == pytest.approx(total, rel=1e-4)


@pytest.mark.slow
def test_a_term_compares_with_another_role_beside_it():
    def apart(logits, teacher_logits):
        """Squared gap of the log-probabilities at a position."""
        gap = jax.nn.log_softmax(teacher_logits) - jax.nn.log_softmax(logits)
        return jnp.sum(jnp.square(gap), axis=-1)

    def distil(apart, mask):
        """A term that compares with a teacher."""
        return apart

    register("field", apart)
    register("loss_term", distil)
    algorithm, graphdef, weights = tied(("distil",), "roles.teacher=frozen", "loss_term.distil.coef=20.0")
    assert algorithm.plan.roles_in_update == ("teacher",)
    assert algorithm.plan.passes_of(live=False) == ()
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    moved, metrics = change(algorithm, graphdef, weights, batch)
    beside = {"teacher_logits": Model(graphdef, others(algorithm, weights, "teacher")["teacher"])}
    mask = np.asarray(batch["mask"])

    def loss(trained):
        model = Model(graphdef, weights._replace(trained=trained))
        found = quantities(model, batch, {"apart": algorithm.fields["apart"]}, jnp.float32(1), {}, beside=beside)
        return 20 * jnp.sum(jnp.where(mask, found["apart"], 0)) / float(mask.sum())

    value, gradient = jax.value_and_grad(loss)(weights.trained)
    assert value > 1e-3
    assert 20 * means(metrics)["loss_term/distil/mean"] == pytest.approx(float(value), rel=1e-3)
    same(change(only(algorithm, "distil"), graphdef, weights, batch)[0], scaled(-1, gradient), 1e-2)
    same(change(in_micro_batches(algorithm, 5), graphdef, weights, batch)[0], moved, 1e-2)


def test_a_column_of_numbers_reaches_the_loss():
    def eager(logps, advantages, difficulty, mask):
        """Learn more from what is difficult."""
        return -logps * advantages * difficulty[:, None]

    @attrs.frozen(kw_only=True)
    class Graded:
        """A task with a column of numbers."""

        columns = ("answer", "difficulty")

        def examples(self, split):
            return []

        def corpus(self):
            return []

    register("policy_loss", eager)
    register("task", Graded)
    algorithm, graphdef, weights = make(*PLAIN, "train.task=Graded", "train.policy_loss=eager", "train.monitor=()")
    assert algorithm.plan.columns.keys() == {"difficulty"}
    difficulty = jnp.arange(12, dtype=jnp.float32)
    batch, _ = collect(algorithm, graphdef, weights, sampled() | {"difficulty": difficulty})
    learnt, _ = change(in_micro_batches(algorithm, 5), graphdef, weights, batch)
    plain, *_ = make(*BASE)
    expected, _ = change(plain, graphdef, weights, batch | {"advantages": batch["advantages"] * difficulty[:, None]})
    same(learnt, expected, 1e-4)


def test_corrections_and_loss_masks_weigh_the_policy_loss_and_no_other_term():
    def halved(rollout_logps, mask):
        """Weigh all by a half."""
        return jnp.full(mask.shape, 0.5), mask

    register("loss_term", square)
    register("correction", halved)
    algorithm, graphdef, weights = tied(("square",), "train.correction=halved")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    found = {}
    doubled = batch | {"is_weights": 2 * batch["is_weights"]}
    for name in ("reinforce", "square"):
        found[name] = [change(only(algorithm, name), graphdef, weights, each)[0] for each in (batch, doubled)]
    same(scaled(2, found["reinforce"][0]), found["reinforce"][1], 1e-4)
    same(*found["square"])


def test_a_loss_s_own_parameter_named_coef_is_its_own():
    def own(logps, advantages, mask, *, coef: float = 0.5):
        """A loss with a parameter of this name."""
        return -logps * advantages * (1 + coef)

    register("policy_loss", own)
    algorithm, graphdef, weights = make(*PLAIN, "train.policy_loss=own", "train.monitor=()")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    plain, *_ = make(*BASE)
    same(change(algorithm, graphdef, weights, batch)[0], scaled(1.5, change(plain, graphdef, weights, batch)[0]), 1e-4)


def test_a_third_party_s_kind_of_terms_may_give_them_coefficients():
    kind = Kind(
        name="regulariser",
        summary="",
        stage="loss_terms",
        many=True,
        default=(),
        reads="fields",
        term=True,
        parameters={"coef": 1.0},
    )
    current().add_kind(kind, Origin("session", "0", ""))
    register("regulariser", square)
    with_it = (*BASE, "train.regulariser=['square']")
    algorithm, graphdef, weights = make(*with_it, "regulariser.square.coef=0.5")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    half, whole = (change(only(made, "square"), graphdef, weights, batch)[0] for made in (algorithm, make(*with_it)[0]))
    same(scaled(2, half), whole, 1e-4)


def test_a_term_s_coefficient_is_not_a_parameter_of_its_own():
    def greedy(logps, mask, *, coef: float = 1.0):
        """A term that would have two coefficients."""

    register("loss_term", greedy)
    with pytest.raises(ConfigError, match="loss_term.greedy .* has a parameter 'coef', which the engine gives every"):
        make(*BASE, "train.loss_terms=['greedy']")


def test_sizes_that_do_not_divide_one_another():
    """128 rows, mini-batches of 64 and micro-batches of at most 100: a micro-batch is no larger than its mini-batch."""
    algorithm, *_ = make(
        "train.prompts=16", "train.group_size=8", "train.mini_batch_size=64", "train.micro_batch_size=100"
    )
    sizes = algorithm.sizes
    assert (sizes.mini_batch_size, sizes.micro_batch_size, sizes.rows_per_prompt) == (64, 64, 8)


@pytest.mark.slow
@pytest.mark.parametrize(("mini", "micro"), [(8, 5), (6, 4), (8, 100)])
def test_an_update_runs_whatever_the_sizes(mini, micro):
    chosen = (f"train.mini_batch_size={mini}", f"train.micro_batch_size={micro}")
    algorithm, graphdef, weights = make(*BASE, *chosen)
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    sizes = algorithm.sizes
    assert sizes.mini_batch_size % sizes.rows_per_prompt == sizes.micro_batch_size % sizes.rows_per_prompt == 0
    first, *_ = mini_batches(batch, sizes.mini_batch_size, 1, jax.random.key(0), sizes.rows_per_prompt)
    # a mini-batch that is cut into rows holds them in any order, so that no prompt is shared in the whole of it either
    at_once = attrs.evolve(sizes, micro_batch_size=sizes.mini_batch_size, group_size=sizes.rows_per_prompt)
    whole = attrs.evolve(algorithm, sizes=at_once)
    same(*(change(each, graphdef, weights, first, moment())[0] for each in (algorithm, whole)), 1e-4)


def test_a_component_that_compares_a_group_refuses_sizes_that_cut_it():
    @dovetail.declares(whole_groups=True)
    def ranking(logps, group_ids, mask):
        """A term on pairs of a group."""
        return logps

    register("loss_term", ranking)
    assert make(*BASE, "train.loss_terms=['ranking']", "train.micro_batch_size=8")[0].whole_groups
    with pytest.raises(ConfigError, match="compares the completions of a group, and train.micro_batch_size = 6 cuts"):
        make(*BASE, "train.loss_terms=['ranking']", "train.micro_batch_size=6")
