"""Questions to a model, one folder each: explain, contrast, intervene, attention, images."""
