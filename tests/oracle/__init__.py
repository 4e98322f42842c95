"""A naive second program that computes every sealed table of a comparison again, and shares no code with the package.

It starts from the files that the config names and from the cached responses. `check.differences` compares.
"""
