"""The uses of a trained model of any task: prediction, evaluation, recording, pictures and service."""
