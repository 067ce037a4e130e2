"""What producers and consumers may do because of schemas."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.policies.core.avro_types import enum, optional
from geminga.broker.policies.core.readers import AUTO_UPDATE_STRATEGIES, flag_of, strategy_of
from geminga.broker.policies.core.row import NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import SCHEMA_STRATEGIES, check_boolean, check_strategy
from geminga.broker.schema.core.strategy import Strategy

_WITH_REPLICATOR: Final = "is_allow_auto_update_schema_with_replicator"
SCHEMA_COMPATIBILITY: Final = PolicyRow(
    name="schemaCompatibilityStrategy",
    policy=PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    read=strategy_of,
    # As in Pulsar, whose default is FULL.
    otherwise=Strategy.FULL,
    check=check_strategy,
    keys=("schemaCompatibilityStrategy",),
    namespace=NamespaceLevel(
        "schema_compatibility_strategy",
        Rest("schemaCompatibilityStrategy", "PUT", unset="UNDEFINED"),
        new="UNDEFINED",
        removed="UNDEFINED",
        older=("schema_auto_update_compatibility_strategy", AUTO_UPDATE_STRATEGIES),
    ),
    topic=TopicLevel(
        {
            "schemaCompatibilityStrategy": optional(
                enum("org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy", *SCHEMA_STRATEGIES)
            )
        },
        Rest("schemaCompatibilityStrategy", "PUT"),
    ),
    followed_by=("admission/topic_schemas.py",),
    text="What a new schema of a topic must keep to.",
)
SCHEMA_VALIDATION: Final = PolicyRow(
    name="schemaValidationEnforced",
    policy=PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    read=flag_of,
    otherwise=False,
    check=check_boolean,
    keys=("isSchemaValidationEnforced",),
    namespace=NamespaceLevel(
        "schema_validation_enforced",
        Rest("schemaValidationEnforced", nothing=Nothing.IS_REFUSED, unset=False),
        new=False,
        removed=False,
    ),
    topic=TopicLevel(
        {"schemaValidationEnforced": optional("boolean")},
        Rest("schemaValidationEnforced", nothing=Nothing.IS_REFUSED, unset=False),
    ),
    followed_by=("admission/topic_schemas.py",),
    text="Whether producers without a schema are refused where there is one.",
)
ALLOW_SCHEMA_UPDATE: Final = PolicyRow(
    name="isAllowAutoUpdateSchema",
    policy=PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    read=flag_of,
    otherwise=True,
    check=check_boolean,
    keys=("isAllowAutoUpdateSchemaEnabled",),
    namespace=NamespaceLevel(
        "is_allow_auto_update_schema",
        Rest(
            "isAllowAutoUpdateSchema",
            nothing=Nothing.IS_REFUSED,
            answers_broker=True,
            beside=("allowAutoUpdateSchemaWithReplicator", _WITH_REPLICATOR),
            refused_beside="Can not enable for all producers but denies for replicators, which is meaningless",
        ),
    ),
    followed_by=("admission/topic_schemas.py",),
    text="Whether producers may bring new schemas.",
)
ALLOW_REPLICATED_SCHEMAS: Final = PolicyRow(
    name="isAllowAutoUpdateSchemaWithReplicator",
    policy=PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    read=flag_of,
    # As in Pulsar 4.2, which has no such policy; 5.0 lets replicators where nothing is said.
    otherwise=False,
    check=check_boolean,
    namespace=NamespaceLevel(_WITH_REPLICATOR),
    followed_by=("admission/topic_schemas.py",),
    text=(
        "Whether replicators may bring new schemas where other producers may not; set by "
        "`allowAutoUpdateSchemaWithReplicator` of `isAllowAutoUpdateSchema`."
    ),
)

ROWS: Final = (SCHEMA_COMPATIBILITY, SCHEMA_VALIDATION, ALLOW_SCHEMA_UPDATE, ALLOW_REPLICATED_SCHEMAS)
