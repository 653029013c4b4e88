"""Pruning: which terms of the closed form may go, what is put in their place, and what it costs."""
