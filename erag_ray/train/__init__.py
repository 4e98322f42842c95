"""Fine-tuning of FiD and IPA readers, from question files to a `save_pretrained` folder.

`examples` loads and checks files, `curriculum` assigns questions to steps, `batches` samples and tokenises them,
`start` creates a model from scratch, `loop` trains (in one process or several workers of torch.distributed), and
`checkpoints` saves weights and optimiser. A step is a function of the config and its number, so resuming needs no
other state.
"""
