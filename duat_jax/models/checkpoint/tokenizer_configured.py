"""A checkpoint's tokenizer as `AutoTokenizer` of transformers 5 makes it of `tokenizer.json` and its settings."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from duat_jax.errors import BadCheckpoint, warn_caller
from duat_jax.models.chat import set_template
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.tokenizer import one_error, read_tokenizer
from duat_jax.models.checkpoint.tokenizer_classes import CLASSES, TokenizerClass
from duat_jax.models.checkpoint.tokenizer_settings import NAMES, TokenizerSettings, read_tokenizer_settings

_NAMES = """
    BarthezTokenizer BartphoTokenizer BasicTokenizer BertGenerationTokenizer BertJapaneseTokenizer
    BertweetTokenizer BigBirdTokenizer BioGptTokenizer BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer
    CLIPTokenizer CTRLTokenizer CamembertTokenizer CanineTokenizer CharacterTokenizer ClvpTokenizer
    CpmAntTokenizer CpmTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer DPRReaderTokenizer
    DebertaTokenizer DebertaV2Tokenizer DiaTokenizer EsmTokenizer EsmcTokenizer FNetTokenizer FSMTTokenizer
    FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer GPTSw3Tokenizer
    HerbertTokenizer LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer LukeTokenizer
    M2M100Tokenizer MBart50Tokenizer MBartTokenizer MLukeTokenizer MPNetTokenizer MarianTokenizer
    MarkupLMTokenizer MecabTokenizer MgpstrTokenizer MyT5Tokenizer NllbTokenizer NougatTokenizer
    OpenAIGPTTokenizer PLBartTokenizer PegasusTokenizer PerceiverTokenizer PhobertTokenizer Pop2PianoTokenizer
    ProphetNetTokenizer Qwen3_5Tokenizer RagTokenizer ReformerTokenizer RemBertTokenizer RoCBertTokenizer
    RoFormerTokenizer SeamlessM4TTokenizer Siglip2Tokenizer SiglipTokenizer Speech2TextTokenizer SpeechT5Tokenizer
    SplinterTokenizer T5Tokenizer TapasTokenizer Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer VitsTokenizer
    Wav2Vec2CTCTokenizer Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer WordpieceTokenizer XGLMTokenizer
    XLMTokenizer XLNetTokenizer
"""
UNKNOWN = frozenset(_NAMES.split())
"""The classes that read texts in a way that isn't known here: they are refused."""

REGISTERED = {
    "albert": "AlbertTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "cohere": "CohereTokenizer",
    "cohere2": "CohereTokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "gptj": "GPT2Tokenizer",
    "olmoe": "GPTNeoXTokenizer",
    "opt": "GPT2Tokenizer",
    "phi": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "qwen3_moe": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "starcoder2": "GPT2Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
"""The class of a family's tokenizers where none is stated."""

ALWAYS = frozenset({"qwen2"})
"""The families whose tokenizers have that class although another one is stated."""

AS_THEY_ARE = frozenset(
    [
        "ernie4_5",
        "glm",
        "glm4",
        "gpt_bigcode",
        "granite",
        "granitemoe",
        "ministral",
        "mistral",
        "mixtral",
        "modernbert",
        "olmo2",
        "olmo3",
        "phi3",
        "stablelm",
    ]
)
"""The families whose tokenizers are those of `tokenizer.json` although a class is stated."""


AS_IT_IS = frozenset({"TokenizersBackend", "PreTrainedTokenizer"})
"""The classes whose texts `tokenizer.json` alone says how to read, without the ending Fast."""


def class_name(settings: TokenizerSettings, text: str) -> str | None:
    """Return the name of the class that reads a tokenizer's texts, or `None` if `tokenizer.json` is read as it is."""
    family, stated = settings.family or "", settings.stated and settings.stated.removesuffix("Fast")
    code = settings.fields.get("auto_map")
    if code and (not isinstance(code, dict) or code.get("AutoTokenizer")):
        if stated is not None and stated not in CLASSES.keys() | UNKNOWN | AS_IT_IS:
            raise BadCheckpoint(f"{settings.path}: {quoted(stated)} is code of the checkpoint, which is never run")
        name = stated or REGISTERED.get(family)
    elif family in AS_THEY_ARE or (stated == "LlamaTokenizer" and family not in ALWAYS and '"ByteLevel"' in text):
        return None
    else:
        name = REGISTERED.get(family) if stated is None or family in ALWAYS else stated
    if name in UNKNOWN:
        raise BadCheckpoint(
            f"{settings.path}: {name} isn't supported; {', '.join(sorted(CLASSES))} are, and tokenizers that"
            " tokenizer.json describes whole (PreTrainedTokenizerFast)"
        )
    return name if name in CLASSES else None


def read_configured_tokenizer(folder: Path, file: Path, model_config: Any) -> Tokenizer:
    """Read a checkpoint's tokenizer, without truncation or padding, and its chat template."""
    tokenizer = read_tokenizer(file)
    settings = read_tokenizer_settings(folder, tokenizer, model_config)
    tokenizer.no_padding()
    name = class_name(settings, file.read_text(encoding="utf-8"))
    kind = None if name is None else CLASSES[name]
    if kind is not None and not isinstance(tokenizer.model, kind.model):
        needs = f"{name} needs {kind.model.__name__}, and tokenizer.json has {type(tokenizer.model).__name__}"
        if settings.stated is not None and name == settings.stated.removesuffix("Fast"):
            raise BadCheckpoint(
                f"{settings.path}: {needs}: state the class PreTrainedTokenizerFast to read it as it is"
            )
        warn_caller(f"{folder}: {needs}, which is read as it is")
        kind = None
    with one_error(f"{settings.path}: the tokenizer can't be put together"):
        tokenizer = configured(tokenizer, settings, kind)
    set_template(tokenizer, settings.template, _named(settings, kind))
    return tokenizer


def configured(tokenizer: Tokenizer, settings: TokenizerSettings, kind: TokenizerClass | None) -> Tokenizer:
    """Return a tokenizer with its settings."""
    named = _named(settings, kind)
    extra = settings.extra or []
    if kind is not None:
        extra = list(kind.extra) if settings.extra is None else settings.extra
        built = kind.build(tokenizer, settings, named)
        if tokenizer.post_processor is not None:
            built.post_processor = tokenizer.post_processor
        tokenizer = built
    tokenizer.encode_special_tokens = bool(settings.switch("split_special_tokens", False))
    known = {token.content for token in [*tokenizer.get_added_tokens_decoder().values(), *settings.added]}
    special = [token for token in [*named.values(), *extra] if token is not None]
    new = [_added(token) for token in special if str(token) not in known]
    texts = {str(token) for token in named.values()}
    for token in settings.added:
        token.special = token.special or token.content in texts
    tokenizer.add_tokens([*settings.added, *new])
    if kind is not None:
        tokenizer.add_tokens([_added(str(token)) for token in special if isinstance(token, kind.again)])
    if kind is not None and kind.ends is not None:
        tokenizer.post_processor = kind.ends(tokenizer, settings, named)
    return tokenizer


def _named(settings: TokenizerSettings, kind: TokenizerClass | None) -> dict[str, AddedToken | str | None]:
    """Return the special tokens by name: the class's own, or that of the padding, where the settings have no others."""
    own = {} if kind is None else kind.tokens
    return dict.fromkeys(NAMES) | {"pad_token": settings.padding} | dict(own) | dict(settings.named)


def _added(token: AddedToken | str) -> AddedToken:
    return AddedToken(token, special=True) if isinstance(token, str) else token
