"""The figures of the report, and their drawing by Vega-Lite."""

from erag_ray.report.figures.charts import svg

__all__ = ["svg"]
