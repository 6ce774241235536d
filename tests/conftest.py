"""What holds for every test: none fails because the machine is busy, and what failed once fails again.

`make soak` draws new examples each time; a new one that fails belongs into its test.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "memgas",
    deadline=None,
    derandomize=os.environ.get("MEMGAS_SCALE") != "soak",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("memgas")
