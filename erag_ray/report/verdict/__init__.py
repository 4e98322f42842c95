"""The verdict of a report: which run serves the reader best (`standing` states the rule), and what supports it."""

from erag_ray.report.verdict.answer import MAX_QUESTIONS
from erag_ray.report.verdict.build import cost_text, verdict
from erag_ray.report.verdict.leaderboard import leaderboard
from erag_ray.report.verdict.standing import Comparison, Standing, standing

__all__ = ["MAX_QUESTIONS", "Comparison", "Standing", "cost_text", "leaderboard", "standing", "verdict"]
