import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded_and_single_threaded() -> None:
    """Same numbers every time; workers of a parallel test run must not fight for the cores."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
