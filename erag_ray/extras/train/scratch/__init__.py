"""FiD and IPA models from scratch: tokenizer and initialisation of the weights."""
