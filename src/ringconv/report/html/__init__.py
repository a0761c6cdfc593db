"""The report: one self-contained HTML file on one or many runs."""

from ringconv.report.html.page import REPORT, write_entries, write_report
from ringconv.report.html.textures import entries_of_comparison

__all__ = ["REPORT", "entries_of_comparison", "write_entries", "write_report"]
