"""Compile every formula that the project can print."""
