"""Tables, pictures and files."""

from ringconv.report.comparison import comparison_table, in_a_line
from ringconv.report.html import write_report
from ringconv.report.picture import save_accuracy_picture
from ringconv.report.run_folder import check_out, comparison_results, write_comparison

__all__ = [
    "check_out",
    "comparison_results",
    "comparison_table",
    "in_a_line",
    "save_accuracy_picture",
    "write_comparison",
    "write_report",
]
