"""Low-rank adapters: how far they move every parameter of the closed form."""
