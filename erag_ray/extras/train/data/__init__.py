"""Training data: question and passage files to the batches of each step."""
