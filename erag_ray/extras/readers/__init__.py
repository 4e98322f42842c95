"""Several readers on one set of runs: does the best retriever depend on the reader, and whose labels predict whom?

`stage` runs a comparison for each reader, and `agreement` compares them.
"""
