"""Parts of the network: a layer's attention, MLP and norms, and the embeddings."""


def part_of(name: str) -> str:
    """Return the part of the network that an array belongs to: a layer's attention or MLP, an embedding or a norm.

    Example:
        >>> part_of("stack.blocks.0.attention.query.kernel"), part_of("stack.blocks.3.norm_1.scale")
        ('layer 0 attention', 'layer 3 norm_1')
        >>> part_of("embedding.token"), part_of("final_norm.scale")
        ('embedding.token', 'final_norm')
    """
    steps = name.split(".")
    if steps[0] == "stack":
        return f"layer {steps[2]} {steps[3]}"
    return ".".join(steps[:2]) if steps[0] == "embedding" else steps[0]
