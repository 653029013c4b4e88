"""Inputs of a model: validation, batching, images, baselines, prompts and the labels of tokens."""
