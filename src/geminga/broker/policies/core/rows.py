"""The rows: one for each policy that a broker, a namespace or a topic can have. See ``core/row.py``.

:data:`ROWS` are all of them: every member of Pulsar 4.2.4's ``Policies`` and every field of its ``TopicPolicies`` is in
exactly one. A row whose effect is not built is read, kept and given back like the others, and can not be set.
"""

from __future__ import annotations

from typing import Any, Final

from geminga.broker.policies.core.deletion_rows import ROWS as DELETION
from geminga.broker.policies.core.delivery_rows import ROWS as DELIVERY
from geminga.broker.policies.core.limit_rows import ROWS as LIMITS
from geminga.broker.policies.core.rate_rows import ROWS as RATES
from geminga.broker.policies.core.record_rows import ROWS as RECORDS
from geminga.broker.policies.core.row import PolicyRow
from geminga.broker.policies.core.schema_rows import ROWS as SCHEMAS
from geminga.broker.policies.core.storage_rows import ROWS as STORAGE

__all__ = ["ROWS"]

ROWS: Final[tuple[PolicyRow[Any], ...]] = (
    *LIMITS,
    *DELETION,
    *DELIVERY,
    *SCHEMAS,
    *RATES,
    *STORAGE,
    *RECORDS,
)
