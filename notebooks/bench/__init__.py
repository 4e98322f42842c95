"""How fast reading, retrieval and evaluation are, as ratios against named peers in the same run, with memory and sizes.

`generated` makes passages and vectors, `labelled` runs and labels, `invented` texts and a model; `measured` times
retrieval, `evaluated` evaluation, `reading`, `table_2`, `lists`, `precision` and `long` reading, `host` the work beside
a GPU, `served` requests to a server, `vllm` an actor with its engine, one thing after the other, each in a process of
its own; `run_all` gives the table.
"""
