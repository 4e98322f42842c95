"""Tables and figures of the papers from finished jobs, beside the published values, and the dual-label experiment."""

from erag_ray.papers.config import PapersConfig
from erag_ray.papers.dual_labels import PROBABILITIES, dual_labels, dual_probabilities
from erag_ray.papers.dual_stage import label_twice
from erag_ray.papers.dual_table import dual_tables
from erag_ray.papers.experiments import by_reader_table, figure_1_table, reproduction_table
from erag_ray.papers.figures import host_figure, served_figure
from erag_ray.papers.stage import papers

__all__ = [
    "PROBABILITIES",
    "PapersConfig",
    "by_reader_table",
    "dual_labels",
    "dual_probabilities",
    "dual_tables",
    "figure_1_table",
    "host_figure",
    "label_twice",
    "papers",
    "reproduction_table",
    "served_figure",
]
