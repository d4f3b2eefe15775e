"""A plugin for runs that are to be killed: after some step they wait for it, however late it comes."""

import os
import time

import dovetail


@dovetail.hookimpl
def dovetail_step_end(phase, step):
    while phase == "rl" and step >= int(os.environ["HELD_AT"]):
        time.sleep(60)


def held_at(step: int) -> dict[str, str]:
    """Return what the environment of such a run has."""
    return {"DOVETAIL_PLUGINS": __file__, "HELD_AT": str(step)}
