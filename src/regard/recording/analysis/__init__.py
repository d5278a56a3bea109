"""Computations on recorded maps: selections, rollout, sinks, words, gradients."""
