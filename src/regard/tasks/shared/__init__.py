"""Parts that several tasks share: options, data, encoders, predictors and endpoints."""
