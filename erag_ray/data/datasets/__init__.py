"""Question files -> QUERIES and PROVENANCE.

`queries.load_queries` reads questions in any of the formats (`questions.QUERY_FORMATS`); a data set's score, output
length and family of prompts are one line in `tasks.DATASETS`.
"""
