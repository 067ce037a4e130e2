"""What operators have beside the admin REST: a topic's doctor, backlogs, messages by hand. Each for programs too."""
