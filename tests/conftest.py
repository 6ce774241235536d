"""What holds for every test: none fails because the machine is busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("memgas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("memgas")
