"""The fields of `adapter_config.json`, PEFT's description of adapters."""

import math
import re
from typing import Any

from duat_jax.lora.target_modules import TargetModules
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.settings import Settings

_TRAINING = "eva_config inference_mode init_lora_weights lora_dropout lora_ga_config peft_version runtime_config"
_ELSEWHERE = "auto_mapping base_model_name_or_path megatron_config megatron_core qalora_group_size revision task_type"
# The model states how its kernels are oriented.
HARMLESS = frozenset(f"{_TRAINING} {_ELSEWHERE} fan_in_fan_out".split())
"""Fields that don't change the computation."""

INITIALISATIONS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Supported initialisations of an adapter: all others change the base model's weights too."""

SUPPORTED: dict[str, Any] = {
    "peft_type": "LORA",
    "bias": "none",
    **dict.fromkeys(("use_dora", "use_qalora", "use_bdlora", "lora_bias"), False),
    **{name: [] for name in ("layer_replication", "trainable_token_indices", "target_parameters")},
    "alora_invocation_tokens": [],
    **{f"{name}_config": {} for name in ("arrow", "corda", "kasa", "loftq", "monteclora", "velora")},
}
"""Fields that change the computation, and the only value of each that is supported."""

MERGED_BY_PEFT = ("peft_type", "bias", "use_dora", "trainable_token_indices", "target_parameters")
"""Fields whose other values PEFT merges into a checkpoint that is read."""
REMEDY = (
    "merge it into its base in PEFT, PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload()"
    ".save_pretrained(DIRECTORY), and load that directory"
)
"""The remedy that the refusal of such fields names."""


class AdapterSettings:
    """Ranks and scales of adapters, and the modules that have them or are stored whole.

    Args:
        values: the fields of `adapter_config.json`; their problems are kept in `problems`.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.settings = Settings(values)
        for name, value in SUPPORTED.items():
            self.settings.expect(name, value)
        merged = [i for i, problem in enumerate(self.settings.problems) if problem.startswith(MERGED_BY_PEFT)]
        if merged:
            self.settings.problems[merged[0]] += f": {REMEDY}"
        self.base = values.get("base_model_name_or_path")
        self._rank = self.settings.integer("r")
        self._alpha = self.settings.number("lora_alpha", 8.0)
        self._root = self.settings.boolean("use_rslora", False)
        self.ties = self.settings.boolean("ensure_weight_tying", False)
        self.targets = TargetModules(self.settings)
        self.settings.ignore("modules_to_save")
        whole = values.get("modules_to_save") or []
        if not isinstance(whole, list) or not all(isinstance(name, str) for name in whole):
            self.settings.problems.append(f"modules_to_save must be a list of names, not {quoted(whole)}")
            whole = []
        self._whole = tuple(whole)
        self._ranks, self._alphas = self._pattern("rank_pattern"), self._pattern("alpha_pattern")
        self.problems = self.settings.all_problems(HARMLESS)
        for name in (*self._ranks, *self._alphas):
            try:
                re.compile(name)
            except re.error as error:
                self.problems.append(f"{quoted(name)} isn't a valid pattern of layer names: {error}")
        if (initialisation := values.get("init_lora_weights")) not in INITIALISATIONS:
            self.problems.append(
                f"init_lora_weights = {quoted(initialisation)} changes the base model too: convert it to plain LoRA"
            )

    def _pattern(self, name: str) -> dict[str, Any]:
        group = self.settings.group(name)
        return {} if group is None else {module: group.number(module, 1.0) for module in group.values}

    def whole(self, tensor: str) -> str | None:
        """Return the module that is stored whole, to which a tensor of the model belongs; `None` if there is none."""
        steps = tensor.split(".")[:-1]
        modules = (".".join(steps[: i + 1]) for i in range(len(steps)))
        return next((module for module in modules if module.endswith(self._whole)), None) if self._whole else None

    def rank(self, module: str) -> int:
        """Return the rank of a layer's adapter."""
        return int(_matched(self._ranks, module, self._rank))

    def scale(self, module: str) -> float:
        """Return the factor of a layer's update."""
        rank = self.rank(module)
        return _matched(self._alphas, module, self._alpha) / (math.sqrt(rank) if self._root else rank)


def _matched(patterns: dict[str, Any], module: str, default: Any) -> Any:
    """Return the value of the first pattern that matches the end of a module's name, as in PEFT."""
    return next((patterns[name] for name in patterns if re.match(rf"(.*\.)?({name})$", module)), default)
