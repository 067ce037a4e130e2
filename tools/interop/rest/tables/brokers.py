"""Brokers, metrics, lookup."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

STORIES: Final = [
    Story(
        "brokers",
        get("brokers"),
        get("brokers/"),
        get("brokers/standalone"),
        get("brokers/nowhere"),
        get("brokers/health"),
        get("brokers/health?topicVersion=V1"),
        get("brokers/health?topicVersion=V2"),
        get("brokers/health?topicVersion=V9"),
        get("brokers/health/"),
        post("brokers/health"),
        get("brokers/ready"),
        get("brokers/version"),
        get("brokers/leaderBroker"),
        put("brokers", {}),
        delete("brokers/standalone"),
        get("/status.html"),
        post("/status.html"),
        get("/metrics"),
        get("/metrics/"),
        post("/metrics"),
    ),
    Story(
        "broker configuration",
        get("brokers/configuration"),
        get("brokers/configuration/values"),
        # The keys are those that each broker has.
        get("brokers/configuration/runtime", keys=False),
        post("brokers/configuration/maxMessageSize/1"),
        post("brokers/configuration/noSuchKey/1"),
        post("brokers/configuration/maxMessageSize"),
        delete("brokers/configuration/maxMessageSize"),
        delete("brokers/configuration/noSuchKey"),
        get("brokers/configuration/nothing"),
    ),
    Story(
        "lookup",
        get("/lookup/v2/topic/persistent/{ns}/t"),
        get("/lookup/v2/topic/persistent/{ns}/t/"),
        get("/lookup/v2/topic/non-persistent/{ns}/t"),
        get("/lookup/v2/topic/persistent/{ns}/a%20b"),
        get("/lookup/v2/topic/persistent/{ns}/a%2520b"),
        get("/lookup/v2/topic/persistent/{ns}/a%2Fb"),
        get("/lookup/v2/topic/persistent/{ns}/a+b"),
        get("/lookup/v2/topic/persistent/{ns}/%25zz"),
        get("/lookup/v2/topic/persistent/{ns}/t-partition-0"),
        get("/lookup/v2/topic/persistent/{ns}/t?authoritative=true"),
        get("/lookup/v2/topic/persistent/{ns}/t?authoritative=maybe"),
        get("/lookup/v2/topic/persistent/{ns}/t?listenerName=nobody"),
        get("/lookup/v2/topic/persistent/public/nowhere/t"),
        get("/lookup/v2/topic/persistent/nobody/nowhere/t"),
        get("/lookup/v2/topic/persistent/no%20body/nowhere/t"),
        get("/lookup/v2/topic/other/{ns}/t"),
        get("/lookup/v2/topic/persistent/{ns}"),
        post("/lookup/v2/topic/persistent/{ns}/t"),
        get("/lookup/v2/topic/persistent/{ns}/t/bundle"),
        get("/lookup/v2/topic/persistent/{ns}/a%2520b/bundle", exact=True),
        get("/lookup/v2/topic/persistent/{ns}/a%20b/bundle", exact=True),
        get("/lookup/v2/topic/non-persistent/{ns}/t/bundle"),
        get("/lookup/v2/topic/persistent/public/nowhere/t/bundle"),
        get("/lookup/v2/topic/persistent/nobody/nowhere/t/bundle"),
        get("/lookup/v2/topic/other/{ns}/t/bundle"),
    ),
]
