"""The encoders of texts and images."""

from .family import LABELS, TEXT, Family, Settings


def _encoder(prefix: str) -> dict[str, str]:
    return {
        "masked": f"{prefix}ForMaskedLM",
        "classes": f"{prefix}ForSequenceClassification",
        "hidden": f"{prefix}Model",
    }


_BERT = {
    **TEXT,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    **LABELS,
}
_BERT_SWITCHES: dict[str, Settings] = {
    "activation": {"hidden_act": "silu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "epsilon": {"layer_norm_eps": 0.1},
    "heads": {"num_attention_heads": 2},
    "untied": {"tie_word_embeddings": False},
}


ENCODERS: dict[str, Family] = {
    "bert": Family("BertLayer", _encoder("Bert"), _BERT, _BERT_SWITCHES),
    "roberta": Family(
        "RobertaLayer",
        _encoder("Roberta"),
        {**_BERT, "max_position_embeddings": 24, "pad_token_id": 1, "type_vocab_size": 1},
        {**_BERT_SWITCHES, "pad_token_id in the text": {"pad_token_id": 6}},
    ),
    "xlm-roberta": Family(
        "XLMRobertaLayer",
        _encoder("XLMRoberta"),
        {**_BERT, "max_position_embeddings": 24, "pad_token_id": 1, "type_vocab_size": 1},
        {**_BERT_SWITCHES, "pad_token_id in the text": {"pad_token_id": 6}},
    ),
    "camembert": Family(
        "CamembertLayer",
        _encoder("Camembert"),
        {**_BERT, "max_position_embeddings": 24, "pad_token_id": 1, "type_vocab_size": 1},
        {**_BERT_SWITCHES, "pad_token_id in the text": {"pad_token_id": 6}},
    ),
    "electra": Family(
        "ElectraLayer",
        _encoder("Electra"),
        {**_BERT, "embedding_size": 10},
        {**_BERT_SWITCHES, "embedding_size": {"embedding_size": 16}},
    ),
    "distilbert": Family(
        "TransformerBlock",
        _encoder("DistilBert"),
        {
            **TEXT,
            "dim": 16,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": 16,
            "pad_token_id": 0,
            **LABELS,
        },
        {
            "activation": {"activation": "relu"},
            "heads": {"n_heads": 2},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "vit": Family(
        "ViTLayer",
        {"hidden": "ViTModel", "classes": "ViTForImageClassification"},
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "image_size": 12,
            "patch_size": 4,
            **LABELS,
        },
        {
            "activation": {"hidden_act": "relu"},
            "without attention bias": {"qkv_bias": False},
            "epsilon": {"layer_norm_eps": 0.1},
            "one channel": {"num_channels": 1},
            "patch_size": {"patch_size": 6},
            "oblong": {"image_size": [8, 12], "patch_size": [4, 2]},
        },
    ),
    "albert": Family(
        "AlbertLayer",
        _encoder("Albert"),
        {**_BERT, "embedding_size": 10},
        {
            **_BERT_SWITCHES,
            "gelu_new": {"hidden_act": "gelu"},
            "embedding_size": {"embedding_size": 16},
            "num_hidden_groups": {"num_hidden_groups": 2},
            "inner_group_num": {"inner_group_num": 2},
        },
    ),
    "modernbert": Family(
        "ModernBertEncoderLayer",
        _encoder("ModernBert"),
        {
            **TEXT,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
            "local_attention": 4,
            "pad_token_id": 0,
            **LABELS,
        },
        {
            "activation": {"hidden_activation": "silu"},
            "epsilon": {"norm_eps": 0.1},
            "biases": {"norm_bias": True, "attention_bias": True, "mlp_bias": True},
            "local_attention": {"local_attention": 8},
            "global_attn_every_n_layers": {"global_attn_every_n_layers": 2},
            "layer_types": {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
            "global_rope_theta": {"global_rope_theta": 100.0},
            "local_rope_theta": {"local_rope_theta": 100.0},
            "rotary, newer": {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                }
            },
            "decoder_bias": {"decoder_bias": False},
            "classifier_bias": {"classifier_bias": True},
            "classifier_activation": {"classifier_activation": "relu"},
            "untied": {"tie_word_embeddings": False},
        },
        {"classifier_pooling": {"classifier_pooling": "mean"}},
    ),
}
