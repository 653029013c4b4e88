"""Fields of `config.json` that `transformers` reads and that don't affect a model's output, and bookkeeping."""

_BOOKKEEPING = """
    _name_or_path model_type name_or_path transformers_version torch_dtype dtype transformers.js_config
    sentence_transformers sbert_ce_default_activation_function
"""  # The file's origin, and its dtype, which is an argument of `load`.

_TRAINING = """
    gradient_checkpointing init_std initializer_cutoff_factor initializer_factor initializer_range
    output_router_logits router_aux_loss_coef router_jitter_noise sinusoidal_pos_embds sparse_pred_ignore_index
    sparse_prediction
"""  # Initial weights and losses.

_KERNELS = """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _experts_implementation_internal
    attn_implementation chunk_size_feed_forward deterministic_flash_attn experts_implementation reorder_and_upcast_attn
    _sliding_window_pattern
"""  # Implementations of the same function; the pattern from which `layer_types` was made.

_RETURNED = """
    output_attentions output_hidden_states pooler_act pooler_output_size return_dict use_cache
"""  # Further results of a call.

_TOKENS = """
    bos_token_id cls_token_id eos_token_id mask_token_id pad_token_id sep_token_id tokenizer_class
"""  # Tokens for the tokenizer and for sampling; padding is an argument of a call.

_HEADS = """
    _num_labels architectures finetuning_task id2label label2id num_labels problem_type task_specific_params
"""  # Read for a head of classes, without effect on other heads.

HARMLESS = frozenset(" ".join((_BOOKKEEPING, _TRAINING, _KERNELS, _RETURNED, _TOKENS, _HEADS)).split())
"""Fields of any family that don't affect the embeddings, hidden states and logits of a text."""
