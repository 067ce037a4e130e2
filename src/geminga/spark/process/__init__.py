"""What one Python process of Spark has: its clients, the gateway to the JVM, threads, versions."""
