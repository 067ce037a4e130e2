"""A FastAPI service on topics: orders are published, worked off in the background and shown to browsers as they come.

::

    geminga standalone
    PULSAR_SERVICE_URL=pulsar://localhost:6650 \
        uvicorn examples.fastapi_orders.app:app --timeout-graceful-shutdown 5

docs/fastapi.md goes through it. ``settings``: what the environment says; ``messaging``: the client, its producer and
the worker, from the start of the service to its end; ``streaming``: server-sent events; ``app``: the routes.
"""
