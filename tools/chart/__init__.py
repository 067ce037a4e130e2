"""``make chart``: the Helm chart rendered, validated, and its commands run."""
