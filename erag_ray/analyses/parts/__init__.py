"""Parts of a report: typed tables, figures and findings (`model`), shapes of tables (`shapes`), numbers as text.

Analyses create parts; the report puts them into sections and renders them.
"""
