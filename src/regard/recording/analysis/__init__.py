"""What is computed from a recording: selections, rollout, sinks, words, gradients."""
