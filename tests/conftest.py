from __future__ import annotations

import os

from hypothesis import settings

# No deadline: the tests must not depend on the speed of the machine.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
