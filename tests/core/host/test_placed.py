"""An engine on other devices does whatever it does on the trainer's."""

from types import SimpleNamespace

from dovetail.devices.mesh import Devices
from dovetail.host.placed import PlacedEngine


def test_the_timings_of_an_engine_are_passed_on():
    timed = SimpleNamespace(timings=lambda: {"seconds_per_token": 0.5})
    assert PlacedEngine(timed, Devices(None)).timings() == {"seconds_per_token": 0.5}
    assert PlacedEngine(SimpleNamespace(), Devices(None)).timings() == {}
