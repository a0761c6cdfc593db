"""``ringconv bench``."""

from __future__ import annotations

import functools
from typing import Any

from ringconv import benchmark
from ringconv.commands._terminal import usage_errors


@functools.wraps(benchmark.bench)
def bench(**options: Any) -> object:
    with usage_errors():
        return benchmark.bench(**options)
