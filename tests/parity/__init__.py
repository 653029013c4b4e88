"""Every family and every switch that changes its computation, compared live with Hugging Face `transformers`."""
