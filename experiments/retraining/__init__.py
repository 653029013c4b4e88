"""Forecasts of retraining without some examples, by exact ledgers and by other methods."""
