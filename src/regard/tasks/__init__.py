"""Tasks: data, model, loss, metric and picture together; the configuration is the task."""
