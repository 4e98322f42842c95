"""Shared by models in this process: tokens, weights, devices, memory and likelihoods."""
