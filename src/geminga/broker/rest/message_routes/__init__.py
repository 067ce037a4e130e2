"""Messages over plain HTTP: publishing as Pulsar has it, consuming and a live tail, which are Geminga's own."""
