"""The report of the golden cases agrees with the tests, and accounts for every case."""

from pathlib import Path

from tests.golden_report import PAGE, facts, page, rest

ROOT = Path(__file__).parents[1]


def test_no_case_is_listed_twice() -> None:
    named = [(fact.library, fact.case) for fact in facts()]
    assert len(named) == len(set(named))


def test_every_case_is_run_or_has_its_reason() -> None:
    assert all(fact.departure for fact in rest(facts()))


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.golden_report`"
