"""Comparison of the gauges of gated terms in the collapse."""
