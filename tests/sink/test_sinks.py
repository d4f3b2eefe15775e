"""The contract of every sink; new sinks join by registration."""

import pytest

import dovetail


@pytest.fixture(params=dovetail.names("sink"))
def maker(request):
    return dovetail.get("sink", request.param).bind()


@pytest.mark.parametrize("start", [0, 3])
def test_a_sink_takes_any_metrics_and_closes_twice(maker, start, tmp_path):
    sink = maker.open(tmp_path, 5, start)
    sink.write(start, {"eval/accuracy": 0.5})
    sink.write(start + 1, {"reward/mean": 1.0, "a/figure/of a plugin": float("nan")})
    sink.write(start + 2, {})
    sink.close()
    sink.close()


def test_closing_without_a_record_is_fine(maker, tmp_path):
    maker.open(tmp_path, 5, 0).close()
