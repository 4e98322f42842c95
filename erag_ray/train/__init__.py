"""Fine-tuning of FiD and IPA readers: files -> examples -> batches -> a `save_pretrained` folder.

`examples` loads and checks, `curriculum` says what each step reads, `batches` draws and tokenises it, `start` makes a
model from scratch, `loop` trains (alone or as one of several workers of torch.distributed), `checkpoints` keeps what
is needed to go on. A step depends on the config and its own number alone, so that going on needs no other state than
weights and optimiser.
"""
