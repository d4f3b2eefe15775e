"""pass@k is unbiased."""

from itertools import combinations

import pytest

from dovetail.train.evaluate import pass_at_k


@pytest.mark.parametrize(("n", "correct"), [(1, 1), (5, 0), (5, 2), (6, 5), (6, 6)])
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_one(n, correct):
    outcomes = [1] * correct + [0] * (n - correct)
    for k in range(1, n + 1):
        subsets = list(combinations(outcomes, k))
        assert pass_at_k(n, correct, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_more_than_was_drawn_is_refused():
    with pytest.raises(ValueError, match="pass@9 needs 1 to 8 samples of 8"):
        pass_at_k(8, 3, 9)
