"""Options that several commands share: the model, what it reads, and the number that is read from it."""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.groups import Fields
from duat_jax.cli.kept_model import kept_model
from duat_jax.cli.progress import loading_bar
from duat_jax.errors import InvalidInput

if TYPE_CHECKING:
    from rich.text import Text as Line
    from tokenizers import Tokenizer

    from duat_jax.display.examples import Examples
    from duat_jax.models.config import Config
    from duat_jax.models.transformer import Transformer


class Dtype(StrEnum):
    """The dtype of the parameters; everything is computed in float32 at least."""

    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclass(kw_only=True)
class Source:
    """Options of the model that is asked: where it is, how it reads texts, and in which dtype it computes."""

    model: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint directory, GGUF file or hub:OWNER/NAME[@REVISION]; the embedded model if absent."
        ),
    ] = None
    no_special_tokens: Annotated[
        bool,
        typer.Option(
            "--no-special-tokens", help="Add no special tokens to texts: they have those that are written in them."
        ),
    ] = False
    chat: Annotated[
        bool, typer.Option("--chat", help="Read texts as a user's messages, by the chat template of the checkpoint.")
    ] = False
    head: Annotated[
        str | None,
        typer.Option(help="The read-out: 'next token', 'masked token', 'classes' or 'hidden'; as saved if absent."),
    ] = None
    dtype: Annotated[
        Dtype, typer.Option(help="Dtype of the parameters; with two bytes everything is computed in float32.")
    ] = Dtype.float32
    survey: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a survey, which shows where the model's neurons are strongest; the embedded model has"
            " one."
        ),
    ] = None

    @property
    def name(self) -> str:
        """The model's name in tables and files."""
        return "embedded" if self.model is None else str(self.model).encode(errors="replace").decode()

    def open(self, function: str | None = None) -> "Config":
        """Start JAX, and return the model's parts."""
        start_jax(float64=self.dtype is Dtype.float64)
        if function is not None and self.config.image is not None:
            raise InvalidInput(f"a {self.config.family} model reads images: {function}")
        return self.config

    @cached_property
    def config(self) -> "Config":
        """The model's parts."""
        from duat_jax.models.loader import load_config

        return load_config(self.model, head=self.head)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer."""
        from duat_jax.models.tokenizer import load_tokenizer

        return load_tokenizer(self.model, add_special_tokens=not self.no_special_tokens, chat=self.chat)

    @property
    def tokenizer_if_any(self) -> "Tokenizer | None":
        """The model's tokenizer; none of a model that reads images."""
        return self.tokenizer if self.config.image is None else None

    def output(self, text: str | None, label: str) -> int | str | None:
        """Return the token or the class that a text names."""
        from duat_jax.models.vocabulary.vocabulary import find_token

        if text is None or self.config.head.kind == "classes":
            return text
        return find_token(self.tokenizer, text, label)

    def load(self) -> "Transformer":
        """Load the model once, with a bar of its tensors; it reads texts as the options say."""
        return self._model

    @cached_property
    def _model(self) -> "Transformer":
        from duat_jax.models.checkpoint.place import local_path, or_embedded
        from duat_jax.models.loader import load

        def load_shown() -> "Transformer":
            with loading_bar() as progress:
                return load(self.model, dtype=self.dtype.value, head=self.head, progress=progress)

        options = self.dtype, self.head, self.chat, self.no_special_tokens
        model = kept_model(local_path(or_embedded(self.model)), options, load_shown)
        if self.chat or self.no_special_tokens or "tokenizer" in vars(self):
            model.tokenizer = self.tokenizer
        return model

    def examples(self) -> "Examples | None":
        """Return the texts in which each neuron is strongest; of a model without a survey none."""
        return self._examples

    @cached_property
    def _examples(self) -> "Examples | None":
        from duat_jax.display.examples import read_examples

        if self.survey is None and self.model is not None:
            return None
        examples = read_examples(self.survey)
        if not examples.fit(self.config):
            raise InvalidInput(
                f"--survey {self.survey} is of a model of another family, or with other layers or neurons"
            )
        return examples

    def notes(self, tokens: dict[str, str | None], predictions: Any = ()) -> "list[Line]":
        """Return a line for each token that is given without the leading space with which it is another one."""
        from duat_jax.display.tables import note_lines
        from duat_jax.inputs.leading_space import space_notes

        return note_lines(space_notes(self.config, self.tokenizer_if_any, tokens, predictions))


ModelOfAnyInput = Annotated[Source, Fields("model", "no_special_tokens", "chat", "head", "dtype", "survey")]
ModelOfTexts = Annotated[Source, Fields("model", "no_special_tokens", "chat", "dtype")]
ModelWithoutChat = Annotated[Source, Fields("model", "no_special_tokens", "dtype")]
ModelAndDtype = Annotated[Source, Fields("model", "dtype")]
TrainedModel = Annotated[Source, Fields("model", "no_special_tokens")]


@dataclass(frozen=True, kw_only=True)
class Number:
    """Options of the number that is read from a model: a logit, a difference, a log-probability or a similarity."""

    target: Annotated[
        str | None, typer.Option(help="Token to explain, or class by name or number; the most probable if absent.")
    ] = None
    contrast: Annotated[str | None, typer.Option(help="Token or class whose logit is subtracted.")] = None
    log_probability: Annotated[
        bool,
        typer.Option(
            "--log-probability",
            help="The log-probability instead of the logit; minus the entropy is a part of its own.",
        ),
    ] = False
    against: Annotated[str | None, typer.Option(help="For encoders: the text to compare with.")] = None
    position: Annotated[
        int | None,
        typer.Option(
            help="Token at which the output is read; negative from the end. If absent the last one, or the only mask."
        ),
    ] = None

    @property
    def tokens(self) -> dict[str, str | None]:
        """The tokens that are given, by their options."""
        return {"--target": self.target, "--contrast": self.contrast}

    def arguments(self, source: Source) -> dict[str, Any]:
        """Return the arguments of a question about the number."""
        from duat_jax.inputs.images import load_image
        from duat_jax.targets import LogProbability

        if self.log_probability:
            return {"target": LogProbability(self.target, position=self.position)}
        against: Any = self.against
        if against is not None and source.config.image is not None:
            against = load_image(against, source.name)
        return {
            "target": self.target,
            "contrast": self.contrast,
            "against": against,
            "position": self.position,
        }

    def check(self) -> None:
        """Raise for a log-probability with options that go with a logit or a similarity."""
        if self.log_probability and (self.contrast is not None or self.against is not None):
            raise InvalidInput(
                "--log-probability can only be combined with --target: leave out --contrast and --against"
            )


AnyNumber = Annotated[
    Number,
    Fields(
        *("target", "contrast", "log_probability", "against", "position"),
        against="For encoders: the text to compare with, or the image's file.",
    ),
]


Beside = Annotated[
    str | None,
    typer.Option("--text", help="The text that a model reads beside an image or a sound, whose file is given first."),
]
Pair = Annotated[
    str | None, typer.Option(help="The second text of a pair; of an encoder with a decoder, what the decoder said.")
]


@dataclass(frozen=True, kw_only=True)
class Input:
    """Options of what a model reads: a text, a pair of texts, or an image."""

    text: Annotated[
        str | None,
        typer.Argument(
            help="The text that the model reads; [MASK] or <mask> marks the token to predict. With --out, a file."
        ),
    ] = None
    pair: Pair = None
    image: Annotated[
        str | None,
        typer.Option(help="The image, or the sound, that a model reads instead of a text, or beside one."),
    ] = None
    beside: Beside = None

    def read(self, source: Source) -> Any:
        """Return what the model reads."""
        from duat_jax.inputs.images import load_image

        family, reads_images = source.config.family, source.config.image is not None
        if source.config.beside is not None:
            return self._beside_text(source, *self._file_and_text(source))
        if self.beside is not None:
            raise InvalidInput(f"a {family} model reads no image or sound beside a text: leave --text out")
        if reads_images:
            if self.image is None or self.text is not None or self.pair is not None:
                raise InvalidInput(f"a {family} model reads images: give --image FILE instead of texts")
            return load_image(self.image, source.name)
        if self.image is not None or self.text is None:
            such = " without --image" if self.image is not None else ", in quotes"
            raise InvalidInput(f"a {family} model reads texts: give one{such}")
        two = source.config.decoder_start is not None
        if self.pair is not None and source.config.head.kind == "next token" and not two:
            raise InvalidInput("a language model reads one text, and no pair: leave --pair out")
        if self.pair is not None and source.chat:
            raise InvalidInput("a pair of texts is no chat: leave --chat or --pair out")
        return self.paired(source, self.text)

    def paired(self, source: Source, text: str) -> Any:
        """Return a text, or the image of a file, with the second text of the pair."""
        from duat_jax.inputs.images import load_image
        from duat_jax.inputs.model_inputs import encode_pair

        if source.config.beside is not None:
            file, ours = self._file_and_text(source)
            is_file = (guess_type(text)[0] or "").startswith(("image/", "audio/")) or Path(text).is_file()
            return self._beside_text(source, Path(text), ours) if is_file else self._beside_text(source, file, text)
        if source.config.image is not None:
            return load_image(text, source.name)
        if self.pair is None:
            return text
        return encode_pair(source.tokenizer, text, self.pair, source.config)

    def _file_and_text(self, source: Source) -> tuple[Path, str]:
        """Return the file of an image or a sound, and the text beside it."""
        given = [each for each in (self.image, self.text, self.beside) if each is not None]
        if len(given) != 2 or self.pair is not None:
            raise InvalidInput(
                f"a {source.config.family} model reads an image or a sound beside a text: give a file and --text TEXT"
            )
        return Path(given[0]), str(given[1])

    def _beside_text(self, source: Source, file: Path, text: str) -> dict[str, Any]:
        """Return an image or a sound, and the text beside it."""
        from duat_jax.inputs.images import load_image
        from duat_jax.inputs.processed import load_sound

        if source.config.beside is not None and source.config.beside.sound:
            return {"sound": load_sound(file, source.name), "text": text}
        return {"image": load_image(file, source.name), "text": text}


def check_training(**numbers: float) -> None:
    """Raise for numbers that aren't positive."""
    if wrong := [f"--{name} {value}" for name, value in numbers.items() if not 0 < value < math.inf]:
        raise InvalidInput(f"{', '.join(wrong)}: give a positive number")


Text = Annotated[str, typer.Argument(help="The text that the model reads.")]
TextOrFile = Annotated[str, typer.Argument(help="The text that the model reads. With --out, a file.")]
Top = Annotated[int, typer.Option(min=1, help="Number of the largest terms, or heads and neurons, to list.")]
Tokens = Annotated[int, typer.Option(min=2, help="Number of tokens in a piece.")]
Steps = Annotated[int, typer.Option(min=1, help="Number of steps.")]
Batch = Annotated[int, typer.Option(min=1, help="Number of pieces of text in a step.")]
Rate = Annotated[float, typer.Option(help="The highest learning rate.")]
