from __future__ import annotations

import os

from hypothesis import settings

# No deadline: how fast a machine is says nothing about whether a promise holds.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
