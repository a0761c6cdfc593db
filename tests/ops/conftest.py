"""What the compiled kernels are tested under."""

import pytest
import torch

from ringconv.ops import native


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest) -> object:
    before = native.instruction_set()
    if native.instruction_set(request.param) != request.param:
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    native.instruction_set(before)
