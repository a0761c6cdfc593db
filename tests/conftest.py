import os
import signal

import pytest
import torch
from hypothesis import settings

from ringconv.ops import choice

# One browser for all tests that look at pages.
pytest_plugins = ["browser"]

# A shell starts what runs in the background deaf to Ctrl-C, and some tests are about that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, but for `make test-all`, which looks for new ones.
settings.register_profile("steady", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Said once in a process, it would fail whichever test comes first on a machine without a compiler.
choice._said_why_unavailable = not choice.FUSED_IS_THERE


@pytest.fixture(autouse=True)
def _seeded_and_single_threaded() -> None:
    """Same numbers every time; workers of a parallel test run must not fight for the cores."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
