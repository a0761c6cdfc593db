"""Speed and memory against peers: tables on the terminal, CSV files and plots."""

from ringconv._extras import needs

needs("rich", "bench")

from ringconv.benchmark.cases import Case  # noqa: E402 - what is missing is said first
from ringconv.benchmark.methods import auto_table, table_grid  # noqa: E402
from ringconv.benchmark.run import bench  # noqa: E402

__all__ = ["Case", "auto_table", "bench", "table_grid"]
