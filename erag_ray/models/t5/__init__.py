"""T5 models: FiD (passages encoded separately, attended to together in the decoder) and IPA (all in one input)."""
