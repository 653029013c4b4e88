"""Low-rank adapters: their effect on every parameter of the closed form."""
