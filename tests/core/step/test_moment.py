"""Keys of a step: a different key for each mini-batch, and a key for each row that no split changes."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.core.step.test_update import moment

from dovetail.step.forward import split_rows
from dovetail.step.update import mini_batches


def data(key):
    return jax.random.key_data(key).reshape(-1, 2).tolist()


def test_collection_and_each_mini_batch_have_keys_of_their_own():
    at_collection = moment().fields(None, {})["key"]
    updates = [moment(update=number).fields(None, {}, in_update=True)["key"] for number in range(3)]
    found = [tuple(row) for key in (at_collection, *updates) for row in data(key)]
    assert len(set(found)) == 4


def rows_of(pieces, step):
    """Return the keys of rows by the number of the row and its epoch, without padding rows."""
    found = {}
    for piece in pieces:
        for number, row, here in zip(
            piece["draw_ids"].tolist(), data(step.rows(piece)["row_keys"]), piece["mask"][:, 0].tolist(), strict=True
        ):
            if here:
                found[number] = tuple(row)
    return found


def test_keys_of_rows_do_not_depend_on_the_split():
    batch = {"tokens": jnp.arange(12)[:, None], "mask": jnp.ones((12, 1), bool)}
    step = moment(seed=3)
    whole = rows_of(mini_batches(batch, 12, 2, step.key), step)
    assert len(set(whole.values())) == 24, "each row and each epoch has its own"
    minis = mini_batches(batch, 5, 2, step.key)
    assert rows_of(minis, step) == whole
    micros = [jax.tree.map(lambda x, i=i: x[i], split_rows(mini, 3)) for mini in minis for i in range(2)]
    assert rows_of(micros, step) == whole
    at_collection = data(step.rows(batch)["row_keys"])
    np.testing.assert_array_equal(at_collection, [whole[row] for row in range(12)])
