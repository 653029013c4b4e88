"""Fields of `config.json` that don't affect a model's output, for all families."""

_BOOKKEEPING = """
    _commit_hash _name_or_path model_type name_or_path transformers_version transformers.js_config
    sentence_transformers sbert_ce_default_activation_function
"""  # The file's origin.  A class is chosen by `model_type`; one of the checkpoint's own comes with `auto_map`.

_TRAINING = """
    gradient_checkpointing initializer_range tf_legacy_loss
"""  # Initial weights and losses.

_KERNELS = """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal attn_implementation
    chunk_size_feed_forward dtype torch_dtype torchscript use_bfloat16 xla_device
"""  # Implementations of the same function: its dtype is an argument of `load`.

_RETURNED = """
    output_attentions output_hidden_states output_past output_scores return_dict return_dict_in_generate
    use_cache use_return_dict
"""  # Further results of a call.

_TOKENS = """
    begin_suppress_tokens bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id
    forced_eos_token_id mask_token_id pad_token_id prefix sep_token_id suppress_tokens tokenizer_class unk_token_id
"""  # Tokens for the tokenizer and for sampling; padding is an argument of a call.

_GENERATION = """
    bad_words_ids diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences remove_invalid_values repetition_penalty temperature top_k top_p typical_p
"""  # Sampling of texts from the logits.

_HEADS = """
    _num_labels architectures finetuning_task id2label label2id num_labels problem_type task_specific_params
    tie_encoder_decoder
"""  # Read for a head of classes, without effect on other heads.

HARMLESS = frozenset(" ".join((_BOOKKEEPING, _TRAINING, _KERNELS, _RETURNED, _TOKENS, _GENERATION, _HEADS)).split())
"""Fields of any family that don't affect the embeddings, hidden states and logits of a text."""
