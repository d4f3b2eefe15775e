"""`python -m tests.campaign kill --times 100`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.campaign.kill import CONFIGURATIONS, campaign


def main() -> int:
    """Run a campaign, print its figures as JSON, and return 1 if anything differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    commands = parser.add_subparsers(required=True)
    kill = commands.add_parser("kill", help="kill -9 runs at random moments, and compare what they come to")
    kill.add_argument("--times", type=int, default=100, help="how often, over all configurations")
    kill.add_argument("--seed", type=int, default=0, help="of the moments")
    kill.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS), metavar="NAME")
    kill.add_argument("--folder", type=Path, help="where the runs are kept (default: nowhere)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="campaign-") as temporary:
        found = campaign(options.folder or Path(temporary), options.only, options.times, options.seed)
    print(json.dumps(found, indent=2))
    return int(any(each["differs"] for each in found.values()))


sys.exit(main())
