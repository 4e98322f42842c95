"""Shared by models in this process: tokens, weights, devices, memory, likelihoods and early stopping."""
