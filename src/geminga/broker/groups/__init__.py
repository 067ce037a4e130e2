"""Resource groups as a broker keeps them: limits that topics of several namespaces, and brokers, share. Loaded with the
first topic whose namespace is in one."""
