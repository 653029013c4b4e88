"""The study of circuits that are optimised on the metric."""
