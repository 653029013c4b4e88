#!/usr/bin/env bash
# Expected: add_bos_token in tokenizer_config.json decides whether a text gets a first token.
# Seen with transformers 5.23.0: where there is a tokenizer.json, the field is ignored for a Llama in both directions,
#   and the file's post-processor decides.
# Output seen: true adds 0, false adds 1
# Why it matters: a folder that was made for version 4 with add_bos_token gives other ids, with no warning.
# Source: transformers/tokenization_utils_tokenizers.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
seen=$("$folder/venv/bin/python" - "$folder/model" <<'PYTHON'
import json
import pathlib
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer


def added(template: bool, field: bool) -> int:
    """Return the number of first tokens that a text gets."""
    folder = pathlib.Path(sys.argv[1], f"{template}-{field}")
    folder.mkdir(parents=True)
    file = Tokenizer(models.BPE({"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4}, [], unk_token="<unk>"))
    file.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    file.add_special_tokens(["<unk>", "<s>", "</s>"])
    if template:
        file.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    file.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": field, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return AutoTokenizer.from_pretrained(folder)("a")["input_ids"].count(1)


print(f"true adds {added(False, True)}, false adds {added(True, False)}")
PYTHON
)
echo "$seen"
[ "$seen" = "true adds 0, false adds 1" ]
