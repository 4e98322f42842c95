"""A FiD or IPA model from nothing: its tokenizer, weights and what they know from the start."""
