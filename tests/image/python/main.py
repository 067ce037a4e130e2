"""What a test of an application does with a generic container; the image is the first argument."""

from __future__ import annotations

import sys
import time

import pulsar
import requests
from testcontainers.core.container import DockerContainer


def main(image: str) -> None:
    """Start it, publish and consume, run a command in it."""
    container = DockerContainer(image).with_exposed_ports(6650, 8080)
    begun = time.monotonic()
    with container:
        web = f"http://{container.get_container_host_ip()}:{container.get_exposed_port(8080)}"
        while not answers(web):
            if time.monotonic() - begun > 60:
                raise AssertionError(f"{web} answers nothing: {container.get_logs()}")
        print(f"started in {round((time.monotonic() - begun) * 1000)} ms")
        client = pulsar.Client(f"pulsar://{container.get_container_host_ip()}:{container.get_exposed_port(6650)}")
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"hello")
        message = consumer.receive(20_000)
        assert message.data() == b"hello", message.data()
        consumer.acknowledge(message)
        client.close()
        done = container.exec(["bin/pulsar-client", "produce", "by-hand", "-m", "a,b"])
        assert done.exit_code == 0, done.output
        assert b"2 messages sent" in done.output, done.output
    print("passed")


def answers(web: str) -> bool:
    """Whether it is ready, as the containers of other languages decide it."""
    try:
        return requests.get(f"{web}/admin/v2/clusters", timeout=5).json() == ["standalone"]
    except (requests.RequestException, ValueError):
        return False


if __name__ == "__main__":
    main(sys.argv[1])
