"""Fine-tuning of FiD and IPA readers, from question files to a `save_pretrained` folder.

`data` loads and checks files, assigns questions to steps (`curriculum`), samples and tokenises them (`batches`);
`scratch` creates a model or checks the given one, `loop` trains (in one process or several workers of
torch.distributed), and `checkpoints` saves weights and optimiser. A step is a function of the config and its number, so
resuming needs no other state.
"""
