"""Examples and batches: question and passage files -> what each training step reads."""
