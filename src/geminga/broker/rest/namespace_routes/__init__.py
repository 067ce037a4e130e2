"""Calls about tenants and namespaces: policies, bundles, isolation, deletion."""
