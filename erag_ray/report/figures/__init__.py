"""Figures of the report, rendered with Vega-Lite."""

from erag_ray.report.figures.charts import svg

__all__ = ["svg"]
