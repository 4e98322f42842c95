"""Results of a comparison: a file each, with the schema of its table, what it is made from, and how it is shown.

`contract` says what an `Analysis` is, `every` lists them in reading order, and `evaluation` makes their tables from
LABELS and UTILITY. Pure but for `evaluation`, `retrieval_measures` and `export`. Polars moves, NumPy computes.

Everything is done per dataset, over the same queries for every run: a query without a list counts with 0 in every
list measure, and the reader's closed-book answer is its utility. A null (not judged), and a query that an annotator was
not asked about, are left out of that one column, and the rows say how many were left out.
"""
