#!/usr/bin/env bash
# Expected: a BERT folder with a cased tokenizer.json and no tokenizer_config.json is read as that file says.
# Seen with transformers 5.23.0: the class BertTokenizer lower-cases by its own default, whatever the normalizer in
#   tokenizer.json states.
# Output seen: the file ['Paris'], transformers ['paris']
# Why it matters: a cased model whose folder lost its tokenizer_config.json reads other words, with no warning.
# Source: transformers/models/bert/tokenization_bert.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
seen=$("$folder/venv/bin/python" - "$folder/model" <<'PYTHON'
import json
import pathlib
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "Paris"]
file = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
file.normalizer = normalizers.BertNormalizer(lowercase=False)
file.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
file.add_special_tokens(names[:5])
file.save(str(folder / "tokenizer.json"))
(folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
words = AutoTokenizer.from_pretrained(folder).tokenize("Paris")
print(f"the file {file.encode('Paris').tokens}, transformers {words}")
PYTHON
)
echo "$seen"
[ "$seen" = "the file ['Paris'], transformers ['paris']" ]
