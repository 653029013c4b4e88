"""Schemas: the records that results and commands write as JSON, each kind with its fields."""

from duat_jax.attribution.record import AttributionRecord as AttributionRecord
from duat_jax.evaluation.record import CircuitsRecord as CircuitsRecord
from duat_jax.evaluation.record import FaithfulnessRecord as FaithfulnessRecord
from duat_jax.in_context.record import ContextRecord as ContextRecord
from duat_jax.in_context.record import LedgerRecord as LedgerRecord
from duat_jax.interpret.attention.record import AttentionScoreRecord as AttentionScoreRecord
from duat_jax.interpret.contrast.record import ContrastRecord as ContrastRecord
from duat_jax.interpret.explain.record import ExplanationRecord as ExplanationRecord
from duat_jax.interpret.graph.record import GraphRecord as GraphRecord
from duat_jax.interpret.images.record import ImageMapsRecord as ImageMapsRecord
from duat_jax.interpret.intervene.record import InterventionRecord as InterventionRecord
from duat_jax.json_record import Record as Record
from duat_jax.json_record import read_record as _read_record
from duat_jax.json_record import schema_of as _schema_of
from duat_jax.lora.record import LoraChangeRecord as LoraChangeRecord
from duat_jax.lora.record import LoraTrainingRecord as LoraTrainingRecord
from duat_jax.pruning.record import PruningRecord as PruningRecord
from duat_jax.training.over_examples.record import InfluenceRecord as InfluenceRecord
from duat_jax.training.over_weights.record import WeightLedgerRecord as WeightLedgerRecord
from duat_jax.training.record import TrainLedgerRecord as TrainLedgerRecord
from duat_jax.verification.record import AuditRecord as AuditRecord
from duat_jax.verification.record import VerificationRecord as VerificationRecord
from duat_jax.weights.record import ModelDiffRecord as ModelDiffRecord

KINDS = (
    ExplanationRecord,
    GraphRecord,
    ContrastRecord,
    AttributionRecord,
    InterventionRecord,
    ImageMapsRecord,
    AttentionScoreRecord,
    LedgerRecord,
    ContextRecord,
    LoraChangeRecord,
    LoraTrainingRecord,
    ModelDiffRecord,
    WeightLedgerRecord,
    InfluenceRecord,
    TrainLedgerRecord,
    PruningRecord,
    CircuitsRecord,
    FaithfulnessRecord,
    VerificationRecord,
    AuditRecord,
)
"""Every kind of record."""


def read(content: str | bytes) -> Record:
    """Read the JSON of a result or a command, and return it as the record of its kind.

    Args:
        content: the JSON.

    Raises:
        InvalidInput: if it isn't the JSON of a record, or one of a newer version.

    Example:
        >>> text = '{"kind": "audit", "version": 1, "findings": []}'
        >>> read(text)
        AuditRecord(findings=[], version=1)
    """
    return _read_record(content, KINDS)


def schema() -> dict[str, object]:
    """Return the JSON schema of all kinds of records, told apart by their field `kind`.

    Example:
        >>> len(schema()["$defs"]) > len(KINDS)
        True
    """
    return _schema_of(KINDS)
