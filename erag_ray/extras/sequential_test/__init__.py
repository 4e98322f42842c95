"""Fewer readings for the same answer: the winner of two or more runs from a sample of their documents.

`design` samples documents with known probabilities and estimates a measure from their labels, and `looks` decides at
interim analyses whether a difference is settled; both are pure. `auxiliary` gets a cheap label of all documents, which
narrows the estimates (`prediction_powered`), and `stage` reads and looks until all is settled.
"""
