"""Fewer readings for the same answer: read a sample of the documents, with known probabilities, and stop when told.

`design` says which documents are read and with what probability, `estimates` makes of their labels what all labels
would have given, and `looks` says when two runs' difference is settled, however often one has looked. Pure.
"""
