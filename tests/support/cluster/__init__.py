"""A real Kubernetes of one node, in namespaces of its own. See tests/kubernetes/README.md."""
