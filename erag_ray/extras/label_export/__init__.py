"""Labels of a finished job -> a dataset with a card, and training data for retrievers. Needs neither Ray nor torch.

`load_job` reads the sealed tables of a job, `label_rows` joins labels with their texts, `training_rows` makes tuples of
anchor, positive and negatives, `card` describes both, and `export` writes them. Only `load_job` and `export` do I/O.
"""
