"""Scores of outputs, measures of ranked lists, and agreement between them."""
