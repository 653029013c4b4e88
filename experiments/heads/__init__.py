"""Questions of Wang & Li, 001, Section 4.5: do heads fragment embeddings, and does one head stand in for another?"""
