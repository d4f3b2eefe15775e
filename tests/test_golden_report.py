"""The report of the golden cases is what the tests say, and every case is accounted for."""

from pathlib import Path

import pytest
from tests.golden_report import ELSEWHERE, PAGE, facts, page, rest

ROOT = Path(__file__).parents[1]


def test_no_case_is_listed_twice() -> None:
    named = [(fact.library, fact.case) for fact in facts()]
    assert len(named) == len(set(named))


def test_every_case_is_run_or_has_its_reason() -> None:
    assert all(fact.departure for fact in rest(facts()))


@pytest.mark.parametrize("file", ELSEWHERE.values())
def test_a_test_that_it_names_is_there_and_reads_the_golden_facts(file: str) -> None:
    assert "from tests.golden import load" in (ROOT / file).read_text()


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.golden_report`"
